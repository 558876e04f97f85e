package serve

import (
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/internal/hello"
)

// TestFullOfItsOwn: where all places are taken, a client whose sessions broke gets the place of one
// of them, once; one that names no session of the server gets none.
func TestFullOfItsOwn(t *testing.T) {
	_, p, address := start(t, verbs.ServerOptions{MaxConns: 2})
	admitted := func(token byte, earlier ...uint64) (session uint64, code hello.Code) {
		t.Helper()
		_, a, err := connect(t, address, hello.Hello{Token: verbs.Token{token}, Earlier: earlier})
		if err != nil {
			t.Fatal(err)
		}
		return a.Session, a.Code
	}
	first, _ := admitted(1)
	second, _ := admitted(2)
	<-p.started
	<-p.started
	if _, code := admitted(3, first+second); code != hello.Full {
		t.Errorf("a third client is answered with code %d, want %d", code, hello.Full)
	}
	p.release <- struct{}{}
	third, code := admitted(1, first, first)
	if code != hello.OK {
		t.Fatalf("a client with a broken session is answered with code %d", code)
	}
	<-p.started
	if _, code := admitted(1, first); code != hello.Full {
		t.Errorf("a client that names a session a second time is answered with code %d, want %d", code, hello.Full)
	}
	p.release <- struct{}{}
	p.release <- struct{}{}
	if _, code := admitted(2, second, third); code != hello.OK {
		t.Errorf("a client with two broken sessions is answered with code %d", code)
	}
	<-p.started
	if _, code := admitted(4); code != hello.OK {
		t.Errorf("a client in a place that became free is answered with code %d", code)
	}
	<-p.started
}

// TestShareOfAnIndex: an index has half of the places. One that takes all that it gets keeps no
// other index out, and its own clients take the places of their broken connections.
func TestShareOfAnIndex(t *testing.T) {
	const most = 40
	_, p, address := start(t, verbs.ServerOptions{MaxConns: most})
	admitted := func(client, index byte, earlier ...uint64) (session uint64, code hello.Code) {
		t.Helper()
		_, a, err := connect(t, address, hello.Hello{Token: verbs.Token{client, index}, Earlier: earlier})
		if err != nil {
			t.Fatal(err)
		}
		if a.Code == hello.OK {
			<-p.started
		}
		return a.Session, a.Code
	}
	first, _ := admitted(1, 0)
	for n := range most - 1 {
		want := hello.OK
		if n+1 >= most/2 {
			want = hello.Full
		}
		if _, code := admitted(byte(2+n), 0); code != want {
			t.Fatalf("connection %d of an index is answered with code %d, want %d", n+2, code, want)
		}
	}
	if _, code := admitted(1, 1); code != hello.OK {
		t.Errorf("another index is answered with code %d", code)
	}
	p.release <- struct{}{}
	if _, code := admitted(1, 0, first); code != hello.OK {
		t.Errorf("a client whose connection broke is answered with code %d", code)
	}
}
