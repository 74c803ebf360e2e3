package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

const maxStreams = 2

// pair is the two processes, as the dialling one sees them.
type pair struct {
	mem    *memory
	conns  []net.Conn
	cipher string
	cmd    *exec.Cmd
	in     io.Closer
	orders *json.Encoder // to the child
	ends   *json.Decoder // from the child
}

// hello is the first thing that the child says. An end follows each order; with
// Verify there is also one before it, when the child is ready.
type hello struct {
	Addr string
	Cert []byte
}

type end struct{ Bad int }

func startPair(s settings) (*pair, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &pair{cmd: exec.Command(self, "--child", "--block", strconv.Itoa(s.Block),
		"--blocks", strconv.Itoa(s.Blocks), "--seed", strconv.FormatUint(s.Seed, 10))}
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.in, p.orders, p.ends = in, json.NewEncoder(in), json.NewDecoder(out)
	if err := p.connect(); err != nil {
		p.stop()
		return nil, err
	}
	if p.mem, err = newMemory(s); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *pair) connect() error {
	var h hello
	if err := p.ends.Decode(&h); err != nil {
		return fmt.Errorf("accepting process: %w", err)
	}
	cert, err := x509.ParseCertificate(h.Cert)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	conf := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13, ServerName: "ref-tls"}
	for range maxStreams {
		c, err := tls.Dial("tcp", h.Addr, conf)
		if err != nil {
			return err
		}
		p.conns = append(p.conns, c)
		p.cipher = tls.CipherSuiteName(c.ConnectionState().CipherSuite)
	}
	return nil
}

// stop ends the child by closing its standard input.
func (p *pair) stop() {
	for _, c := range p.conns {
		c.Close()
	}
	p.in.Close()
	// The child's status says nothing that an answer has not said before.
	_ = p.cmd.Wait()
}

func (p *pair) run(r round) (result, error) {
	r.Salt = uint64(time.Now().UnixNano())
	if r.Verify && !r.BSends {
		p.mem.fill(r.Salt)
	}
	start := time.Now()
	if err := p.orders.Encode(r); err != nil {
		return result{}, err
	}
	var e end
	if r.Verify {
		if err := p.ends.Decode(&e); err != nil {
			return result{}, err
		}
		start = time.Now()
	}
	if err := move(p.mem, p.conns, r, !r.BSends); err != nil {
		return result{}, err
	}
	if err := p.ends.Decode(&e); err != nil {
		return result{}, fmt.Errorf("accepting process: %w", err)
	}
	took := time.Since(start)
	if r.Verify && r.BSends {
		e.Bad = p.mem.check(r.Salt)
	}
	if e.Bad > 0 {
		return result{}, fmt.Errorf("%d blocks arrived wrong", e.Bad)
	}
	return p.result(r, took), nil
}

// move sends or receives the whole list, with one goroutine per stream.
func move(m *memory, conns []net.Conn, r round, sender bool) error {
	errs := make([]error, r.Streams)
	var wg sync.WaitGroup
	for i := range r.Streams {
		wg.Go(func() {
			if sender {
				errs[i] = m.sendShare(conns[i], i, r)
			} else {
				errs[i] = m.recvShare(conns[i], i, r)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func childMain(s settings) error {
	conns, err := childAccept(json.NewEncoder(os.Stdout))
	if err != nil {
		return err
	}
	m, err := newMemory(s)
	if err != nil {
		return err
	}
	orders, ends := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var r round
		if err := orders.Decode(&r); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := childRound(m, conns, r, ends); err != nil {
			return err
		}
	}
}

func childRound(m *memory, conns []net.Conn, r round, ends *json.Encoder) error {
	if r.Verify {
		if r.BSends {
			m.fill(r.Salt)
		}
		if err := ends.Encode(end{}); err != nil {
			return err
		}
	}
	if err := move(m, conns, r, r.BSends); err != nil {
		return err
	}
	var e end
	if r.Verify && !r.BSends {
		e.Bad = m.check(r.Salt)
	}
	return ends.Encode(e)
}

func childAccept(out *json.Encoder) ([]net.Conn, error) {
	cert, err := selfSigned()
	if err != nil {
		return nil, err
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13})
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err := out.Encode(hello{l.Addr().String(), cert.Certificate[0]}); err != nil {
		return nil, err
	}
	var conns []net.Conn
	for range maxStreams {
		c, err := l.Accept()
		if err != nil {
			return nil, err
		}
		if err := c.(*tls.Conn).Handshake(); err != nil {
			return nil, err
		}
		conns = append(conns, c)
	}
	return conns, nil
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"ref-tls"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
