package client

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
)

// TestReplyReader: what is no reply of RESP2 is none, whatever it promises.
func TestReplyReader(t *testing.T) {
	f := func(reply, want string) {
		t.Helper()
		r := replyReader{rest: []byte(reply)}
		value, ok := r.next()
		got := fmt.Sprint(value)
		if !ok || len(r.rest) > 0 {
			got = "none"
		}
		if got != want {
			t.Errorf("%.40q is %.40s, want %.40s", reply, got, want)
		}
	}
	f("*2\r\n:-7\r\n*1\r\n$2\r\n\r\n\r\n", "[-7 [[13 10]]]")
	f("*-1\r\n", "<nil>")
	f("$-1\r\n", "<nil>")
	f("*0\r\n", "[]")
	for _, reply := range []string{"", "\r\n", ":1", ":x\r\n", "$2\r\na\r\n", "$3\r\na\r\n", "$1\r\nab\r\n", "$-2\r\n", "*2\r\n:1\r\n", "*-2\r\n", "*9999\r\n", "%1\r\n:1\r\n:2\r\n", ":1\r\n:2\r\n"} {
		f(reply, "none")
	}
	f(strings.Repeat("*1\r\n", maxDepth)+":1\r\n", strings.Repeat("[", maxDepth)+"1"+strings.Repeat("]", maxDepth))
	f(strings.Repeat("*1\r\n", maxDepth+1)+":1\r\n", "none")
}

// TestEvalOfTooMuch: what does not fit into a request is refused before it is sent, as a script.
func TestEvalOfTooMuch(t *testing.T) {
	_, err := new(Client).Eval(t.Context(), "return 1", [][]byte{[]byte("a")}, make([]byte, rpcv1.MaxGroupBytes))
	if want := "a script of "; !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "transaction") {
		t.Errorf("%v, want %q", err, want)
	}
}
