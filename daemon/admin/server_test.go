package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kvpipe/kvpipe/daemon/admin"
	"github.com/kvpipe/kvpipe/daemon/admin/admintest"
)

func checkGet[T any](t *testing.T, c *admin.Client, what string, want T) {
	t.Helper()
	var got T
	if err := c.Get(t.Context(), what, nil, &got); err != nil {
		t.Errorf("%s: %v", what, err)
	} else if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s changed on its way (-sent +got):\n%s", what, diff)
	}
}

func TestEverythingArrives(t *testing.T) {
	src := admintest.Example()
	c := admin.NewClient(admintest.Serve(t, src))
	checkGet(t, c, "status", src.S)
	checkGet(t, c, "peers", src.P)
	checkGet(t, c, "sessions", src.Se)
	checkGet(t, c, "regions", src.R)
	checkGet(t, c, "offers", src.O)
	checkGet(t, c, "transfers", src.T)
	checkGet(t, c, "pipes", src.Pi)
	checkGet(t, c, "explain", src.E)
}

func TestBenchStreams(t *testing.T) {
	src := admintest.Example()
	src.BenchErr = errors.New("the peer left")
	c := admin.NewClient(admintest.Serve(t, src))
	o := admin.BenchOptions{Seconds: 2, Sizes: []uint64{4096}}
	body, err := c.Post(t.Context(), "bench", url.Values{"peer": {"decode-1"}}, o)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	var got []admin.BenchRow
	for dec := json.NewDecoder(body); ; {
		var r admin.BenchRow
		if err := dec.Decode(&r); err != nil {
			break
		}
		got = append(got, r)
	}
	want := append(src.Rows, admin.BenchRow{Error: "the peer left"})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if src.LastPeer != "decode-1" || cmp.Diff(o, src.LastBench) != "" {
		t.Errorf("the source was asked about %q, %+v", src.LastPeer, src.LastBench)
	}
}

// TestErrors: statuses, texts and hints, as any HTTP client sees them.
func TestErrors(t *testing.T) {
	failing := admintest.Example()
	failing.Err = &admin.Failure{Code: http.StatusConflict, Message: "busy", Hint: "wait"}
	broken := admintest.Example()
	broken.Err = errors.New("something")
	late := admintest.Example()
	late.Err = context.DeadlineExceeded
	good := admintest.Example()
	for _, c := range []struct {
		src                *admintest.Source
		method, path, body string
		code               int
		want               admin.Error
	}{
		{good, "GET", "/v1/nothing", "", 404, admin.Error{Error: "no GET /v1/nothing", Hint: "GET /v1/openapi.json lists what there is"}},
		{good, "GET", "/v1//status", "", 404, admin.Error{Error: "no GET /v1//status", Hint: "GET /v1/openapi.json lists what there is"}},
		{good, "GET", "/v1/x/../status", "", 404, admin.Error{Error: "no GET /v1/x/../status", Hint: "GET /v1/openapi.json lists what there is"}},
		{good, "POST", "/v1/./drain", "", 404, admin.Error{Error: "no POST /v1/./drain", Hint: "GET /v1/openapi.json lists what there is"}},
		{good, "GET", "/v1/status/", "", 404, admin.Error{Error: "no GET /v1/status/", Hint: "GET /v1/openapi.json lists what there is"}},
		{good, "DELETE", "/v1/status", "", 404, admin.Error{Error: "no DELETE /v1/status", Hint: "GET /v1/openapi.json lists what there is"}},
		{good, "GET", "/v1/drain", "", 404, admin.Error{Error: "no GET /v1/drain", Hint: "GET /v1/openapi.json lists what there is"}},
		{good, "GET", "/v1/explain?peer=nobody", "", 404, admin.Error{Error: `peer "nobody" is not known (known: decode-1)`, Hint: "kvpipectl peers lists what is known"}},
		{good, "GET", "/v1/explain?peeer=zz", "", 400, admin.Error{Error: `unknown query parameter "peeer"`, Hint: "GET /v1/openapi.json lists what there is"}},
		{good, "GET", "/v1/explain?peer=a&peer=b", "", 400, admin.Error{Error: `query parameter "peer" is given 2 times`, Hint: "give it once"}},
		{good, "GET", "/v1/peers?peer=a", "", 400, admin.Error{Error: `unknown query parameter "peer"`, Hint: "GET /v1/openapi.json lists what there is"}},
		{good, "GET", "/v1/explain?peer=%zz", "", 400, admin.Error{Error: `query: invalid URL escape "%zz"`}},
		{good, "POST", "/v1/bench", "", 400, admin.Error{Error: "body: EOF", Hint: "send BenchOptions as JSON"}},
		{good, "POST", "/v1/bench", `{"second": 1}`, 400, admin.Error{Error: `body: json: unknown field "second"`, Hint: "send BenchOptions as JSON"}},
		{good, "POST", "/v1/bench", `{"sizes": [` + strings.Repeat("1,", 70000) + `1]}`, 400, admin.Error{Error: "body: http: request body too large", Hint: "send BenchOptions as JSON"}},
		{failing, "GET", "/v1/status", "", 409, admin.Error{Error: "busy", Hint: "wait"}},
		{failing, "GET", "/v1/peers", "", 409, admin.Error{Error: "busy", Hint: "wait"}},
		{failing, "POST", "/v1/drain", "", 409, admin.Error{Error: "busy", Hint: "wait"}},
		{broken, "GET", "/v1/offers", "", 500, admin.Error{Error: "something"}},
		{late, "GET", "/v1/transfers", "", 503, admin.Error{Error: "context deadline exceeded"}},
	} {
		w := httptest.NewRecorder()
		admin.New(c.src, nil).ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
		var got admin.Error
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Errorf("%s %s: body %q: %v", c.method, c.path, w.Body, err)
		}
		if w.Code != c.code || got != c.want || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s %s: %d %+v %q, want %d %+v", c.method, c.path, w.Code, got, w.Header().Get("Content-Type"), c.code, c.want)
		}
	}
}

func TestClientErrors(t *testing.T) {
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	var s admin.Status
	err := admin.NewClient(none).Get(t.Context(), "status", nil, &s)
	if want := "no daemon at " + none + `: start it ("systemctl start kvpiped", or "kvpiped --dev"), or name its admin socket with --admin or $KVPIPE_ADMIN`; err == nil || err.Error() != want {
		t.Errorf("no socket: %v, want %s", err, want)
	}
	engines := filepath.Join(dir, "engines")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: engines, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	err = admin.NewClient(engines).Get(t.Context(), "status", nil, &s)
	if want := engines + " is a socket of another kind: name the admin socket with --admin, not the one of engines"; err == nil || err.Error() != want {
		t.Errorf("engines' socket: %v, want %s", err, want)
	}
	src := &admintest.Source{Err: &admin.Failure{Code: http.StatusConflict, Message: "busy", Hint: "wait"}}
	err = admin.NewClient(admintest.Serve(t, src)).Get(t.Context(), "status", nil, &s)
	var f *admin.Failure
	if !errors.As(err, &f) || f.Code != http.StatusConflict || err.Error() != "busy: wait" {
		t.Errorf("a failure: %v", err)
	}
}

// TestDrainEndsWithItsCaller: a kvpipectl that is interrupted does not leave a request waiting.
func TestDrainEndsWithItsCaller(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	src := &admintest.Source{Drained: func(ctx context.Context) {
		close(entered)
		<-ctx.Done()
		close(left)
	}}
	c := admin.NewClient(admintest.Serve(t, src))
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		body, err := c.Post(ctx, "drain", nil, struct{}{})
		if err == nil {
			_, err = io.Copy(io.Discard, body)
			_ = body.Close()
		}
		failed <- err
	}()
	<-entered
	cancel()
	<-left
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("drain: %v", err)
	}
}
