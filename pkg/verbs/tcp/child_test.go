package tcp

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// benchVariable makes the test program the server of a benchmark.
const benchVariable = "TCP_BENCH_CHILD"

const (
	pingRequest = 32
	pingAnswer  = 1024
)

var benchToken = verbs.Token{1}

// anyone admits everybody.
type anyone struct{}

func (anyone) Admit(verbs.Token) (verbs.Peer, error) { return verbs.Peer{Client: 1}, nil }

// BenchServer plays the server if this process was started as one, until its input ends; else it
// returns false.
func BenchServer() bool {
	role := os.Getenv(benchVariable)
	if role == "" {
		return false
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	if role == "ping" {
		go servePings(l)
	} else {
		mem, release, err := verbstest.NewMemory(16<<20, 4096)
		if err != nil {
			panic(err)
		}
		defer release()
		s, err := NewServer(verbs.ServerOptions{Memory: mem, Admission: anyone{}, Reach: checkedReach(mem), TLS: benchTLS()})
		if err != nil {
			panic(err)
		}
		go s.Serve(l)
	}
	io.Copy(io.Discard, os.Stdin)
	return true
}

// benchTLS is a server's configuration with a fresh certificate.
func benchTLS() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// servePings answers 1 KiB for every 32 bytes, all that has arrived at once.
func servePings(l net.Listener) {
	c, err := l.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	in := make([]byte, 64<<10)
	out := make([]byte, len(in)/pingRequest*pingAnswer)
	have := 0
	for {
		n, err := c.Read(in[have:])
		if err != nil {
			return
		}
		have += n
		whole := have / pingRequest
		if _, err := c.Write(out[:whole*pingAnswer]); err != nil {
			return
		}
		have = copy(in, in[whole*pingRequest:have])
	}
}

// benchChild is the server of a benchmark, in its own process.
type benchChild struct {
	address string
	process *os.Process
}

func startBenchChild(b *testing.B, role string) *benchChild {
	b.Helper()
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), benchVariable+"="+role)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return &benchChild{strings.TrimSpace(line), cmd.Process}
}

// cpu is what the child has used so far, to 10 ms: fields 14 and 15 of its stat, in ticks of a
// hundredth of a second.
func (c *benchChild) cpu(b *testing.B) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	var ticks int
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// checkedReach checks requests as a memory server does, and lets all of them through.
func checkedReach(mem []verbs.Memory) func(verbs.Peer) *verbs.Reach {
	const chunk = 1 << 20
	chunks := verbs.NewChunks(0, chunk, (len(mem[0].Bytes)+chunk-1)/chunk)
	for n := range (len(mem[0].Bytes) + chunk - 1) / chunk {
		chunks.Grant(n, 1)
	}
	locks := verbs.Span{Region: verbs.RegionLocks, End: uint64(len(mem[1].Bytes))}
	return func(verbs.Peer) *verbs.Reach { return verbs.NewReach(chunks, 1, locks) }
}
