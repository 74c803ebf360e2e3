package daemon

import (
	"context"
	"net/http"

	"github.com/kvpipe/kvpipe/daemon/admin"
)

func (v view) Bench(context.Context, string, admin.BenchOptions, func(admin.BenchRow)) error {
	return &admin.Failure{Code: http.StatusNotImplemented, Message: "no measurement yet"}
}
