package resp

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/computeserver/computeservertest"
)

// FuzzRESP feeds the parser path of a connection with arbitrary bytes, in arbitrary portions, and
// compares what comes out with the same bytes in one portion.
func FuzzRESP(f *testing.F) {
	f.Add([]byte(computeservertest.Command("GET", "a")+"PING\r\n"+computeservertest.Command("SET", "", "x")), uint8(3))
	f.Add([]byte("*1\r\n$-1\r\n"), uint8(1))
	f.Add([]byte("SET 'a b' \"c\\n\"\n*0\r\n*2\r\n$1\r\na\r\n$"), uint8(2))
	f.Add([]byte(computeservertest.Command("MSET", "a", "\r\n", "", "*1\r\n")+computeservertest.Command("MULTI")+computeservertest.Command("EXEC")), uint8(0))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: a\r\n\r\nSET a b\r\n"), uint8(9))
	f.Add([]byte("PING \"a\\x4\\x41\\\"\" 'b\\'' \t\v\r\n\"\n"), uint8(4))
	f.Add([]byte("*1\r\n$04\r\nPING\r\n*01\r\n$4\r\nPING\r\n*1\n$4\r\n"), uint8(5))
	f.Fuzz(func(t *testing.T, stream []byte, portion uint8) {
		whole := parseAll(t, stream, len(stream)+1)
		parts := parseAll(t, stream, int(portion)+1)
		if whole != parts {
			t.Fatalf("%q in one portion is\n%s\nin portions of %d\n%s", stream, whole, int(portion)+1, parts)
		}
	})
}

// parseAll renders the commands of a stream that arrives in portions, and the error that ends it.
func parseAll(t *testing.T, stream []byte, portion int) string {
	var b strings.Builder
	var fr frames
	var args [][]byte
	begin := 0
	for end := min(portion, len(stream)); ; end = min(end+portion, len(stream)) {
		for {
			n, err := fr.next(stream[begin:end], false)
			if err != nil {
				fmt.Fprintf(&b, "error %v", err)
				return b.String()
			}
			if n == 0 {
				break
			}
			frame := bytes.Clone(stream[begin : begin+n])
			begin += n
			got, ok := split(frame, args[:0])
			if !ok {
				b.WriteString("unbalanced")
				return b.String()
			}
			if len(got) > maxArgs {
				t.Fatalf("%d arguments", len(got))
			}
			args = got
			fmt.Fprintf(&b, "%q\n", got)
		}
		if end == len(stream) {
			return b.String()
		}
	}
}
