package index

import (
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// echo answers with its number.
type echo byte

func (e echo) Call(_ verbs.Peer, _ verbs.Near, _, answer []byte) (int, error) {
	answer[0] = byte(e)
	return 1, nil
}

// TestExecutorOfSeveralDesigns: a request goes to the design whose number it begins with.
func TestExecutorOfSeveralDesigns(t *testing.T) {
	before := designs
	defer func() { designs = before }()
	designs = map[string]Design{}
	if Executor() != nil {
		t.Error("no design is registered, and there is an executor")
	}
	Register(Design{Name: "a", Number: 200, Executor: echo(200)})
	Register(Design{Name: "b", Number: 201})
	Register(Design{Name: "c", Number: 202, Executor: echo(202)})
	e, answer := Executor(), make([]byte, 8)
	for _, number := range []byte{200, 202} {
		if n, err := e.Call(verbs.Peer{}, nil, []byte{number, 1, 2}, answer); err != nil || n != 1 || answer[0] != number {
			t.Errorf("design %d: %d bytes, %v, of %d", number, n, err, answer[0])
		}
	}
	for _, request := range [][]byte{nil, {0}, {201, 7}, {255}} {
		if _, err := e.Call(verbs.Peer{}, nil, request, answer); !errors.Is(err, errNoExecutor) {
			t.Errorf("request %v: %v", request, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("two designs have one number")
		}
	}()
	Register(Design{Name: "d", Number: 202})
}
