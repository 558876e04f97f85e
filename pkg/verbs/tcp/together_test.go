package tcp

import (
	"runtime"
	"sync"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// countWrites makes c count the system calls by which posters write. Nobody posts meanwhile.
func countWrites(c *conn) *int {
	writes := new(int)
	try := c.try
	c.try = func(fd uintptr) bool { // the writer's
		*writes++
		return try(fd)
	}
	return writes
}

// TestSessionsShareWrites: the lists of many goroutines go out in few system calls, whichever way
// they are posted. Sessions of the pool stage one list for each memory server.
func TestSessionsShareWrites(t *testing.T) {
	// So that who posts next does not depend on other processors.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ways := map[string]func(q verbs.QP, list []verbs.Request) error{
		"Post": verbs.Post,
		"PostAll": func(q verbs.QP, list []verbs.Request) error {
			return verbs.PostAll([]verbs.QP{q}, [][]verbs.Request{list})
		},
	}
	for name, post := range ways {
		t.Run(name, func(t *testing.T) {
			_, c, a := newClient(t)
			const sessions, rounds = 16, 200
			writes := countWrites(c.(*conn))
			var all sync.WaitGroup
			for range sessions {
				q, err := c.NewQP(a)
				if err != nil {
					t.Fatal(err)
				}
				b, _ := a.Alloc(8)
				list := []verbs.Request{{Op: verbs.FetchAdd, Local: b, Add: 1}}
				all.Go(func() {
					for range rounds {
						if err := post(q, list); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			all.Wait()
			if most := sessions * rounds / 4; *writes > most {
				t.Errorf("%d lists of %d goroutines went out in %d writes, at most %d expected", sessions*rounds, sessions, *writes, most)
			}
			t.Logf("%d lists in %d writes", sessions*rounds, *writes)
		})
	}
}

// TestOneSessionWritesAtOnce: a session alone, and one that staged lists for several queue pairs,
// writes each time, at once.
func TestOneSessionWritesAtOnce(t *testing.T) {
	_, c, a := newClient(t)
	var qps []verbs.QP
	var lists [][]verbs.Request
	for range 8 {
		q, err := c.NewQP(a)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := a.Alloc(8)
		qps, lists = append(qps, q), append(lists, []verbs.Request{{Op: verbs.FetchAdd, Local: b, Add: 1}})
	}
	writes := countWrites(c.(*conn))
	for n := 1; n <= len(qps); n++ {
		*writes = 0
		if err := verbs.PostAll(qps[:n], lists[:n]); err != nil {
			t.Fatal(err)
		}
		if *writes != 1 {
			t.Errorf("%d lists went out in %d writes", n, *writes)
		}
	}
}
