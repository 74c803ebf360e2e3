package daemon

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestCrowd: a process that opens more connections than there may be keeps nobody else out, and those that ask something stay.
func TestCrowd(t *testing.T) {
	var c crowd
	asked, answer := make(chan struct{}), make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(asked)
			<-answer
		}
	}))
	s.Config.ConnState = c.note
	s.Start()
	defer s.Close()
	at := s.Listener.Addr().String()
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	slow := dial()
	if _, err := io.WriteString(slow, "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-asked
	silent := make([]net.Conn, 2*maxCrowd)
	for i := range silent {
		silent[i] = dial()
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + at + "/") // accepted after all of them
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	closed := 0
	for i, conn := range silent {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
		if i < maxCrowd { // these have made room, or are about to
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		}
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
			closed++
		}
	}
	if most := maxCrowd + 2; closed < maxCrowd || closed > most { // and the one that asks, and the client's
		t.Errorf("%d connections made room, want %d to %d", closed, maxCrowd, most)
	}
	close(answer)
	if n, err := slow.Read(make([]byte, 64)); n == 0 {
		t.Errorf("the one that asked first: %v", err)
	}
}

// TestCrowdThatAsks: where all ask something, the first makes room.
func TestCrowdThatAsks(t *testing.T) {
	var c crowd
	var all []net.Conn
	for range maxCrowd + 1 {
		a, b := net.Pipe()
		t.Cleanup(func() { _, _ = a.Close(), b.Close() })
		all = append(all, a)
		out := c.enter(a, http.StateNew)
		if want := len(all) > maxCrowd; (out != nil) != want || want && out != all[0] {
			t.Fatalf("of %d the one that goes is %v", len(all), out)
		}
		c.enter(a, http.StateActive)
	}
	c.note(all[0], http.StateClosed) // which its server says, too
	for _, a := range all[1:] {
		c.note(a, http.StateClosed)
	}
	if len(c.list) != 0 {
		t.Errorf("%d are left", len(c.list))
	}
}
