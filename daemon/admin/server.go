package admin

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"slices"
	"time"

	"github.com/kvpipe/kvpipe/internal/sys"
)

// OpenAPI describes the interface; GET /v1/openapi.json serves it.
//
//go:embed openapi.json
var OpenAPI []byte

// maxBody bounds a request: none needs more.
const maxBody = 64 << 10

// Server answers on one listener. Make it with New, run Serve in a goroutine, and end it with Close.
type Server struct{ http http.Server }

// New returns a server over src. What net/http has to say goes to complaints; nil means the standard logger.
func New(src Source, complaints *log.Logger) *Server {
	mux := http.NewServeMux()
	get(mux, "/v1/status", src.Status)
	get(mux, "/v1/peers", src.Peers)
	get(mux, "/v1/sessions", src.Sessions)
	get(mux, "/v1/regions", src.Regions)
	get(mux, "/v1/offers", src.Offers)
	get(mux, "/v1/transfers", src.Transfers)
	get(mux, "/v1/pipes", src.Pipes)
	get(mux, "/v1/gpus", src.GPUs)
	get(mux, "/v1/topology", src.Topology)
	get(mux, "/v1/nics", src.NICs)
	handle(mux, "GET /v1/explain", "peer", func(w http.ResponseWriter, r *http.Request) {
		e, err := src.Explain(r.Context(), r.URL.Query().Get("peer"))
		answer(w, e, err)
	})
	handle(mux, "POST /v1/bench", "peer", func(w http.ResponseWriter, r *http.Request) { bench(w, r, src) })
	handle(mux, "POST /v1/drain", "", func(w http.ResponseWriter, r *http.Request) {
		if _, err := readAll(w, r); err != nil {
			answer(w, nil, &Failure{Code: http.StatusBadRequest, Message: "body: " + err.Error()})
			return
		}
		answer(w, struct{}{}, src.Drain(r.Context()))
	})
	handle(mux, "GET /v1/openapi.json", "", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(OpenAPI)
	})
	mux.HandleFunc("/", nothing)
	return &Server{http.Server{Handler: literal(mux), ConnContext: withCaller, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, ErrorLog: complaints}}
}

type callerKey struct{}

func withCaller(ctx context.Context, conn net.Conn) context.Context {
	if u, ok := conn.(*net.UnixConn); ok {
		if by, err := sys.PeerCred(u); err == nil {
			return context.WithValue(ctx, callerKey{}, by)
		}
	}
	return ctx
}

// Caller returns who made the request of that context. False: it is not known.
func Caller(ctx context.Context) (by sys.Cred, known bool) {
	by, known = ctx.Value(callerKey{}).(sys.Cred)
	return by, known
}

// literal has mux see paths as they are alone: of //v1/status it would answer HTML, with another path to ask for.
func literal(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := r.URL.Path; p != path.Clean(p) {
			nothing(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func nothing(w http.ResponseWriter, r *http.Request) {
	answer(w, nil, &Failure{Code: http.StatusNotFound, Message: "no " + r.Method + " " + r.URL.Path, Hint: "GET /v1/openapi.json lists what there is"})
}

// ServeHTTP answers one request, whoever accepted it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.http.Handler.ServeHTTP(w, r) }

// Serve answers until Close; then it returns nil.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Close ends the listener and every connection; requests in flight see their context end.
func (s *Server) Close() error { return s.http.Close() }

// handle refuses any query parameter but the named one, and that one if it is given twice; "" means that none is
// allowed. A misspelt one would ask for something else.
func handle(mux *http.ServeMux, pattern, parameter string, f http.HandlerFunc) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			answer(w, nil, &Failure{Code: http.StatusBadRequest, Message: "query: " + err.Error()})
			return
		}
		for _, name := range slices.Sorted(maps.Keys(query)) {
			if name != parameter || name == "" {
				answer(w, nil, &Failure{http.StatusBadRequest, fmt.Sprintf("unknown query parameter %q", name), "GET /v1/openapi.json lists what there is"})
				return
			}
			if n := len(query[name]); n > 1 {
				answer(w, nil, &Failure{http.StatusBadRequest, fmt.Sprintf("query parameter %q is given %d times", name, n), "give it once"})
				return
			}
		}
		f(w, r)
	})
}

func get[T any](mux *http.ServeMux, path string, f func(context.Context) (T, error)) {
	handle(mux, "GET "+path, "", func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r.Context())
		answer(w, v, err)
	})
}

func answer(w http.ResponseWriter, v any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		f := asFailure(err)
		w.WriteHeader(f.Code)
		_ = json.NewEncoder(w).Encode(Error{Error: f.Message, Hint: f.Hint})
		return
	}
	_ = json.NewEncoder(w).Encode(v)
}

// readAll reads the request to its end. Only then does net/http notice that a caller goes away, and end the request's
// context.
func readAll(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
}

// bench answers with one JSON row a line, each as it is measured.
func bench(w http.ResponseWriter, r *http.Request, src Source) {
	var o BenchOptions
	body, err := readAll(w, r)
	if err == nil {
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		err = dec.Decode(&o)
	}
	if err != nil {
		answer(w, nil, &Failure{Code: http.StatusBadRequest, Message: "body: " + err.Error(), Hint: "send BenchOptions as JSON"})
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc, sent := json.NewEncoder(w), false
	err = src.Bench(r.Context(), r.URL.Query().Get("peer"), o, func(row BenchRow) {
		sent = true
		_ = enc.Encode(row)
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	})
	switch {
	case err != nil && !sent:
		answer(w, nil, err)
	case err != nil:
		_ = enc.Encode(BenchRow{Error: err.Error()})
	}
}

// Failure is an error with its HTTP status and a hint at what to do.
type Failure struct {
	Code          int
	Message, Hint string
}

func (f *Failure) Error() string {
	if f.Hint == "" {
		return f.Message
	}
	return f.Message + ": " + f.Hint
}

func asFailure(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &Failure{Code: http.StatusServiceUnavailable, Message: err.Error()}
	}
	return &Failure{Code: http.StatusInternalServerError, Message: err.Error()}
}
