package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// getLimit bounds how long a resource is waited for: all that is asked for so is there at once, unless the daemon stands still.
const getLimit = 30 * time.Second

// maxSocketPath is what sockaddr_un has room for, without its final 0 (unix(7)).
const maxSocketPath = 107

// Client talks to a daemon's admin socket. Safe for concurrent use.
type Client struct {
	path  string
	http  http.Client
	limit time.Duration // of Get
}

// NewClient returns a client of the socket at path; it connects when it is used.
func NewClient(path string) *Client {
	c := &Client{path: path, limit: getLimit}
	c.http.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", path)
		},
	}
	return c
}

// Get reads a resource such as "status" into v. It waits for a daemon that does not answer for 30 seconds at most.
func (c *Client) Get(ctx context.Context, what string, query url.Values, v any) error {
	silent := fmt.Errorf("the daemon at %s has not answered for %s: its log may say why", c.path, c.limit)
	ctx, cancel := context.WithTimeoutCause(ctx, c.limit, silent)
	defer cancel()
	b, err := c.do(ctx, http.MethodGet, what, query, nil)
	if err == nil {
		defer func() { _ = b.Close() }()
		err = decodeAnswer(b, what, v)
	}
	if err != nil && context.Cause(ctx) == silent {
		return silent
	}
	return err
}

func decodeAnswer(b io.Reader, what string, v any) error {
	if err := json.NewDecoder(b).Decode(v); err != nil {
		return fmt.Errorf("answer to %s: %w", what, err)
	}
	return nil
}

// Post sends body as JSON and returns the answer, which the caller closes.
func (c *Client) Post(ctx context.Context, what string, query url.Values, body any) (io.ReadCloser, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return c.do(ctx, http.MethodPost, what, query, bytes.NewReader(b))
}

func (c *Client) do(ctx context.Context, method, what string, query url.Values, body io.Reader) (io.ReadCloser, error) {
	u := url.URL{Scheme: "http", Host: "kvpiped", Path: "/v1/" + what, RawQuery: query.Encode()}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer func() { _ = resp.Body.Close() }()
	var e Error
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(&e); err != nil || e.Error == "" {
		e.Error = resp.Status
	}
	return nil, &Failure{Code: resp.StatusCode, Message: e.Error, Hint: e.Hint}
}

func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no daemon at %s: start it (\"systemctl start kvpiped\", or \"kvpiped --dev\"), or name its admin socket with --admin", c.path)
	case errors.Is(err, syscall.EINVAL) && len(c.path) > maxSocketPath:
		return fmt.Errorf("%s is a path of %d bytes, that of a socket has at most %d: name the admin socket by a shorter one with --admin", c.path, len(c.path), maxSocketPath)
	case errors.Is(err, syscall.EPROTOTYPE):
		return fmt.Errorf("%s is a socket of another kind: name the admin socket with --admin, not the one of engines", c.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w: the admin socket is for the daemon's user and root", c.path, fs.ErrPermission)
	}
	var dial *net.OpError
	var asked *url.Error
	if errors.As(err, &asked) && !(errors.As(err, &dial) && dial.Op == "dial") && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the daemon at %s hung up before it had answered: its log may say why: %w", c.path, asked.Err)
	}
	return err
}
