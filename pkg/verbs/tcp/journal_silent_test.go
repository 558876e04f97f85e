package tcp

import (
	"testing"
	"time"

	"github.com/dmindex/dmindex/pkg/env"
	"github.com/dmindex/dmindex/pkg/verbs"
	"github.com/dmindex/dmindex/pkg/verbs/verbstest"
)

// TestSilentClientBesideACopy: a client that takes no answers, and whose lists change memory in
// front of and behind long READs, keeps the order from nobody, and is cut as ever.
func TestSilentClientBesideACopy(t *testing.T) {
	const lists = 64 // their answers are more than the kernel keeps
	memory, tokens := verbstest.Memory(t, 4<<20, 4096), new(verbstest.Tokens)
	data := memory[verbs.RegionData].Bytes
	replica := verbstest.NewCopy(env.Real(), data)
	j := verbs.NewJournal(env.Real(), nil)
	replica.Join(j)
	s, err := NewServer(verbs.ServerOptions{Memory: memory, Admission: tokens, Journal: j})
	if err != nil {
		t.Fatal(err)
	}
	address := listen(t, s)
	silent := patientConn(t, address, tokens)
	var all []byte
	for seq := range uint32(lists) {
		all = append(all, encodeList([]verbs.Request{
			{Op: verbs.Write, Remote: 64, Local: make([]byte, 64)},
			{Op: verbs.Read, Remote: 1 << 20, Local: make([]byte, verbs.MaxTransfer-4096)},
			{Op: verbs.FetchAdd, Remote: 128, Add: 1, Local: make([]byte, 8)},
		}, 0, seq)...)
	}
	start, own := j.Last(), verbs.Position(0)
	if _, err := silent.Write(all); err != nil {
		t.Fatal(err)
	}

	d := NewDevice()
	c, err := d.Connect(verbs.Target{Address: address, Token: tokens.Issue(verbs.Peer{Client: 2})}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, err := d.NewArena(4096)
	if err != nil {
		t.Fatal(err)
	}
	q, err := c.NewQP(a)
	if err != nil {
		t.Fatal(err)
	}
	local, err := a.Alloc(64)
	if err != nil {
		t.Fatal(err)
	}
	// Until the server has begun with the silent client, and waits for it: then these changes are
	// all that is recorded.
	for alone := 0; alone < 300 || j.Last() == start+own; alone++ {
		before := j.Last()
		if err := verbs.Post(q, []verbs.Request{{Op: verbs.Write, Remote: 4096, Local: local}}); err != nil {
			t.Fatalf("a change beside a client that takes no answers: %v", err)
		}
		own += verbs.Position(verbs.ItemBytes(len(local)))
		if j.Last() != before+verbs.Position(verbs.ItemBytes(len(local))) {
			alone = 0
		}
	}

	begun := time.Now()
	if n := s.Disconnect(func(p verbs.Peer) bool { return p.Client == 1 }); n != 1 {
		t.Errorf("%d sessions were cut", n)
	}
	if took := time.Since(begun); took > verbs.WaitLimit/2 {
		t.Errorf("it was cut within %v", took)
	}
	if done := data[128]; done == 0 || done == lists {
		t.Errorf("%d of its %d lists were done: it did not wait for its client", done, lists)
	}
	if err := j.Wait(nil, j.Last()); err != nil || !replica.Equal(data) {
		t.Errorf("the copy is equal: %v, %v", replica.Equal(data), err)
	}
}
