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
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvpipe/kvpipe/daemon/config"
)

// getLimit bounds how long Get waits for a resource. Everything that it asks for is there at once, unless the daemon
// stands still.
const getLimit = 30 * time.Second

// maxSocketPath is what sockaddr_un has room for, without its final 0 (unix(7)).
const maxSocketPath = 107

// ErrNoDaemon says that nobody listens at any of a client's places.
var ErrNoDaemon = errors.New("no daemon")

// nowhere is an ErrNoDaemon, unless no place could be looked at.
type nowhere struct {
	looked  []string
	strange error // why another place was not looked at
}

func (n *nowhere) Error() string {
	if len(n.looked) == 0 {
		return fmt.Sprintf("%v: remove it, or name another admin socket with --admin or $KVPIPE_ADMIN", n.strange)
	}
	none := fmt.Sprintf("%v at %s: start it (\"systemctl start kvpiped\", or \"kvpiped --dev\"), or name its admin socket with --admin or $KVPIPE_ADMIN",
		ErrNoDaemon, strings.Join(n.looked, " or "))
	if n.strange != nil {
		none += fmt.Sprintf("; not looked for one in what could be a stranger's: %v", n.strange)
	}
	return none
}

func (n *nowhere) Is(target error) bool { return target == ErrNoDaemon && len(n.looked) > 0 }

// Client talks to a daemon's admin socket. Safe for concurrent use.
type Client struct {
	places []string
	at     atomic.Pointer[string] // the place that was tried last
	http   http.Client
	limit  time.Duration // of Get
}

// NewClient returns a client of the first of these sockets at which somebody listens. It looks for that one each time
// it is used.
func NewClient(place string, others ...string) *Client {
	c := &Client{places: append([]string{place}, others...), limit: getLimit}
	c.at.Store(&place)
	c.http.Transport = &http.Transport{DisableKeepAlives: true, DialContext: c.dial}
	return c
}

// dial follows libkvpipe's rule. It passes over a place where there is nothing, or only what a dead daemon left behind;
// a place that could be a stranger's; and one that is not for this user. The last is the error if nobody is elsewhere.
func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var none nowhere
	var barred error
	for i, path := range c.places {
		conn, strange, err := config.Dial(ctx, "unix", path)
		switch {
		case strange != nil:
			none.strange = strange
		case err == nil:
			c.at.Store(&c.places[i])
			return conn, nil
		case Nobody(err):
			none.looked = append(none.looked, path)
		case len(c.places) == 1 || !errors.Is(err, fs.ErrPermission) || !enginesPass(path):
			c.at.Store(&c.places[i])
			return nil, err
		case barred == nil:
			c.at.Store(&c.places[i])
			barred = err
		}
	}
	if barred != nil {
		return nil, barred
	}
	return nil, &none
}

// enginesPass reports whether this user's engines find no daemon at this place either. A daemon that serves them, even
// if it does not answer this user here, is theirs, and one at another place is not.
func enginesPass(admin string) bool {
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: filepath.Join(filepath.Dir(admin), "kvpiped.sock"), Net: "unixpacket"})
	if err == nil {
		_ = conn.Close()
		return false
	}
	return Nobody(err) || errors.Is(err, fs.ErrPermission)
}

// Nobody reports whether such an error says that no daemon is there.
func Nobody(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ECONNREFUSED)
}

// Get reads a resource such as "status" into v. It waits at most 30 seconds for a daemon that does not answer.
func (c *Client) Get(ctx context.Context, what string, query url.Values, v any) error {
	silent := errors.New("silent")
	ctx, cancel := context.WithTimeoutCause(ctx, c.limit, silent)
	defer cancel()
	b, err := c.do(ctx, http.MethodGet, what, query, nil)
	if err == nil {
		defer func() { _ = b.Close() }()
		err = decodeAnswer(b, what, v)
	}
	if err != nil && context.Cause(ctx) == silent {
		return fmt.Errorf("the daemon at %s has not answered for %s: its log may say why", *c.at.Load(), c.limit)
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
	path := *c.at.Load()
	var none *nowhere
	switch {
	case errors.As(err, &none):
		return none
	case errors.Is(err, syscall.EINVAL) && len(path) > maxSocketPath:
		return fmt.Errorf("%s is a path of %d bytes, that of a socket has at most %d: name the admin socket by a shorter one with --admin", path, len(path), maxSocketPath)
	case errors.Is(err, syscall.EPROTOTYPE):
		return fmt.Errorf("%s is a socket of another kind: name the admin socket with --admin, not the one of engines", path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w: the admin socket is for the daemon's user and root", path, fs.ErrPermission)
	}
	var dial *net.OpError
	var asked *url.Error
	if errors.As(err, &asked) && !(errors.As(err, &dial) && dial.Op == "dial") && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the daemon at %s hung up before it had answered: its log may say why: %w", path, asked.Err)
	}
	return err
}
