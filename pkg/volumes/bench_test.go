package volumes

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/env"
)

// answering is a primary that waits for a copy, on the real machine.
func answering(t testing.TB) *Member {
	t.Helper()
	m, err := New(env.Real(), "a", State{View: View{Number: 3, Primary: proc("a", 1)}, Content: Served}, &toyHost{})
	b := proc("b", 1)
	for _, do := range []func() error{
		func() error { return err },
		func() error { return m.Start() },
		func() error { return m.Join(3, b) },
		func() error { permit(m, b); return m.WaitFor(b, 0, func() uint64 { return 1 }) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	m.peers[0].until, m.peers[0].applied = env.Forever, 1
	m.count()
	return m
}

// TestAnswersAllocateNothing: what each list and each flush asks.
func TestAnswersAllocateNothing(t *testing.T) {
	m := answering(t)
	if n := testing.AllocsPerRun(100, func() {
		if !m.Executes() || !m.MayAnswer(1) {
			t.Fatal("it does not answer")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMayAnswer(b *testing.B) {
	m := answering(b)
	for b.Loop() {
		m.MayAnswer(1)
	}
}
