package tcp

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// TestLongAnswers: answers longer than a session's buffer say what a model says, whatever stands in
// the buffer before them and wherever they are parted.
func TestLongAnswers(t *testing.T) {
	t.Run("whole", func(t *testing.T) {
		_, _, address, tokens := bufferServer(t, patience, patience)
		longAnswers(t, patientConn(t, address, tokens))
	})
	t.Run("pieces", func(t *testing.T) {
		b, _, address, tokens := bufferServer(t, patience, patience)
		takeAll(t, b)
		longAnswers(t, patientConn(t, address, tokens))
	})
}

func longAnswers(t *testing.T, c net.Conn) {
	const region = 4 << 20
	random := rand.New(rand.NewPCG(1, 2))
	model := make([]byte, region)
	for round := range 100 {
		var sent, want []byte
		for seq := range uint32(1 + random.IntN(3)) {
			var list []verbs.Request
			for left := maxPayload; len(list) < verbs.MaxList; {
				n := 1 + random.IntN(1+[]int{100, 5000, maxPayload - 1}[random.IntN(3)])
				r := verbs.Request{Op: verbs.Read, Remote: uint64(random.IntN(region - n)), Local: make([]byte, n)}
				switch random.IntN(4) {
				case 0:
					r.Op, r.Local = verbs.Write, r.Local[:min(n, 100)]
					for i := range r.Local {
						r.Local[i] = byte(random.Uint32())
					}
				case 1:
					r.Op, r.Remote, r.Local, r.Add = verbs.FetchAdd, r.Remote&^7, make([]byte, 8), random.Uint64()
				}
				if left -= len(r.Local); left < 0 {
					break
				}
				list = append(list, r)
			}
			if len(list) == 0 {
				continue
			}
			sent = append(sent, encodeList(list, 0, seq)...)
			at := len(want)
			want = append(want, make([]byte, headerSize)...)
			for i := range list {
				r := &list[i]
				there := model[r.Remote:][:len(r.Local)]
				if r.Op != verbs.Write {
					want = append(want, there...)
					want = append(want, zeros[:pad(len(there))-len(there)]...)
				}
				switch r.Op {
				case verbs.Write:
					copy(there, r.Local)
				case verbs.FetchAdd:
					binary.LittleEndian.PutUint64(there, binary.LittleEndian.Uint64(there)+r.Add)
				}
			}
			(&header{size: uint32(len(want) - at), kind: frameList, count: uint8(len(list)), seq: seq}).put(want[at:])
		}
		failed := make(chan error, 1)
		go func() {
			_, err := c.Write(sent)
			failed <- err
		}()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("round %d: the answers differ from the model's", round)
		}
	}
}

// TestLongListOutOfRange: nothing of a list with a long answer is executed unless all of it is
// within its region.
func TestLongListOutOfRange(t *testing.T) {
	_, _, address, tokens := bufferServer(t, patience, patience)
	got := answers(t, patientConn(t, address, tokens), encodeList([]verbs.Request{
		{Op: verbs.FetchAdd, Local: make([]byte, 8), Add: 1},
		{Op: verbs.Read, Local: make([]byte, 2*outBuffer)},
		{Op: verbs.Read, Remote: 4 << 20, Local: make([]byte, 1)},
	}, 0, 0))
	if len(got) != 1 || got[0].kind != frameError || got[0].code != codeOutOfRange {
		t.Errorf("answered with %+v", got)
	}
	c := patientConn(t, address, tokens)
	if _, err := c.Write(encodeList([]verbs.Request{{Op: verbs.Read, Local: make([]byte, 8)}}, 0, 0)); err != nil {
		t.Fatal(err)
	}
	var b [headerSize + 8]byte
	if _, err := io.ReadFull(c, b[:]); err != nil || b[headerSize] != 0 {
		t.Errorf("the first word is %d after a list that was refused: %v", b[headerSize], err)
	}
}
