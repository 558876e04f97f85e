package tcp

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/dmindex/dmindex/pkg/verbs"
)

// encodeList is the frame of a list that fits into one.
func encodeList(list []verbs.Request, qp uint16, seq uint32) []byte {
	n, size := partOf(list)
	if n != len(list) {
		panic("the list needs several frames")
	}
	b := (&header{size: uint32(size), qp: qp, kind: frameList, count: uint8(n), seq: seq}).append(nil)
	for i := range list {
		b = appendRequest(b, &list[i])
	}
	return b
}

func drawList(t *rapid.T) []verbs.Request {
	if rapid.IntRange(0, 7).Draw(t, "call") == 0 {
		b := rapid.SliceOfN(rapid.Byte(), 8, 100).Draw(t, "room")
		return []verbs.Request{{Op: verbs.Call, Local: b, Args: rapid.IntRange(0, len(b)).Draw(t, "args")}}
	}
	list := make([]verbs.Request, rapid.IntRange(1, verbs.MaxList).Draw(t, "requests"))
	for i := range list {
		r := &list[i]
		*r = verbs.Request{
			Op:     verbs.Op(rapid.IntRange(0, int(verbs.MaskedFetchAdd)).Draw(t, "op")),
			Region: verbs.RegionID(rapid.IntRange(0, 1).Draw(t, "region")),
			Fence:  rapid.Bool().Draw(t, "fence"),
			Remote: rapid.Uint64().Draw(t, "remote") &^ 7,
			Local:  make([]byte, 8),
		}
		operands := rapid.SliceOfN(rapid.Uint64(), 4, 4).Draw(t, "operands")
		switch r.Op {
		case verbs.Read, verbs.Write:
			r.Remote += rapid.Uint64Range(0, 7).Draw(t, "odd")
			r.Local = rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "bytes")
		case verbs.CompareSwap:
			r.Compare, r.Swap = operands[0], operands[1]
		case verbs.FetchAdd:
			r.Add = operands[0]
		case verbs.MaskedCompareSwap:
			r.Compare, r.Swap, r.CompareMask, r.SwapMask = operands[0], operands[1], operands[2], operands[3]
		case verbs.MaskedFetchAdd:
			r.Add, r.Boundary = operands[0], operands[1]
		}
	}
	return list
}

// same compares what travels.
func same(a *verbs.Request, b *request) bool {
	x, y := *a, b.Request
	bytesEqual := x.Op != verbs.Write || bytes.Equal(x.Local, y.Local)
	if x.Op == verbs.Call {
		bytesEqual = x.Args == y.Args && bytes.Equal(x.Local[:x.Args], y.Local)
	}
	length := len(x.Local)
	x.Local, y.Local = nil, nil
	return bytesEqual && length == b.length && x.Op == y.Op && x.Region == y.Region && x.Fence == y.Fence && x.Remote == y.Remote &&
		x.Compare == y.Compare && x.Swap == y.Swap && x.CompareMask == y.CompareMask && x.SwapMask == y.SwapMask &&
		x.Add == y.Add && x.Boundary == y.Boundary
}

func TestListRoundTrip(t *testing.T) {
	var reqs [verbs.MaxList]request
	rapid.Check(t, func(t *rapid.T) {
		reqs = [verbs.MaxList]request{}
		list := drawList(t)
		frame := encodeList(list, 7, 9)
		h, err := decodeHeader(frame)
		if err != nil || int(h.size) != len(frame) || h.qp != 7 || h.seq != 9 || h.kind != frameList {
			t.Fatalf("header %+v, %v", h, err)
		}
		got, answer, err := decodeList(&h, frame, &reqs)
		if err != nil || len(got) != len(list) {
			t.Fatalf("%d requests, %v", len(got), err)
		}
		want := headerSize
		for i := range list {
			if !same(&list[i], &got[i]) {
				t.Fatalf("request %d: %+v comes back as %+v", i, list[i], got[i])
			}
			want += answerBytes(list[i].Op, len(list[i].Local))
		}
		if answer != want || answer > maxFrame {
			t.Fatalf("an answer of %d bytes, want %d", answer, want)
		}
		// One byte less or more is no list.
		h.size -= 8
		if _, _, err := decodeList(&h, frame[:len(frame)-8], &reqs); !errors.Is(err, errFrame) {
			t.Fatalf("a cut list: %v", err)
		}
		h.size += 16
		if _, _, err := decodeList(&h, append(frame, zeros[:]...), &reqs); !errors.Is(err, errFrame) {
			t.Fatalf("a list with a tail: %v", err)
		}
	})
}

// TestLargestFrames: what the client may put into one frame, and what the answer may be, is within
// what the inbox takes.
func TestLargestFrames(t *testing.T) {
	local := make([]byte, verbs.MaxTransfer)
	for _, op := range []verbs.Op{verbs.Read, verbs.Write, verbs.Call} {
		list := []verbs.Request{{Op: op, Local: local}}
		if op == verbs.Call {
			list[0] = verbs.Request{Op: op, Local: local[:verbs.MaxCall], Args: verbs.MaxCall}
		}
		if _, size := partOf(list); size > maxFrame {
			t.Errorf("a %v of %d bytes takes a frame of %d, %d allowed", op, len(local), size, maxFrame)
		}
		if op == verbs.Call {
			continue
		}
		list = nil
		for range verbs.MaxList - 1 {
			list = append(list, verbs.Request{Op: op, Local: local[:verbs.MaxTransfer/verbs.MaxList-1]})
		}
		list = append(list, verbs.Request{Op: verbs.MaskedCompareSwap, Local: local[:8]})
		n, size := partOf(list)
		if n != len(list) || size > maxFrame {
			t.Errorf("%d of %d requests fit into a frame of %d bytes", n, len(list), size)
		}
	}
	list := []verbs.Request{{Op: verbs.Read, Local: local}, {Op: verbs.Write, Local: local}, {Op: verbs.FetchAdd, Local: local[:8]}}
	if n, _ := partOf(list); n != 2 {
		t.Errorf("%d requests in the first frame, want 2: one direction has its bytes", n)
	}
}

// seeds are frames of all kinds, sound and not.
func seeds() [][]byte {
	b := make([]byte, 24)
	list := []verbs.Request{
		{Op: verbs.Read, Remote: 8, Local: b}, {Op: verbs.Write, Remote: 3, Local: b[:5], Fence: true},
		{Op: verbs.CompareSwap, Region: 1, Local: b[:8], Compare: 1, Swap: 2}, {Op: verbs.FetchAdd, Local: b[:8], Add: 3},
		{Op: verbs.MaskedCompareSwap, Local: b[:8], CompareMask: 4}, {Op: verbs.MaskedFetchAdd, Local: b[:8], Boundary: 5},
	}
	whole := encodeList(list, 3, 4)
	two := append(encodeList(list[:1], 1023, 1<<32-1), whole...)
	odd := bytes.Clone(whole)
	odd[16] = 99
	long := bytes.Clone(whole)
	long[0] = 0xff
	bye := (&header{size: headerSize, kind: frameBye}).append(nil)
	call := encodeList([]verbs.Request{{Op: verbs.Call, Local: b, Args: 5}}, 3, 5)
	return [][]byte{whole, two, odd, long, bye, call, whole[:20], whole[:7], {}}
}

// FuzzDecodeFrame: whatever arrives is taken as frames within bounds or refused; what is taken for
// a list is sound, and encodes to a list of the same meaning.
func FuzzDecodeFrame(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		var reqs [verbs.MaxList]request
		in := newInbox(64)
		r := bytes.NewReader(stream)
		taken := 0
		for {
			fillErr := in.fill(r)
			for {
				h, frame, err := in.next()
				if err != nil {
					return
				}
				if frame == nil {
					break
				}
				if !bytes.Equal(frame, stream[taken:taken+int(h.size)]) {
					t.Fatalf("the frame at byte %d is not what arrived", taken)
				}
				taken += len(frame)
				list, answer, err := decodeList(&h, frame, &reqs)
				if h.kind != frameList || err != nil {
					continue
				}
				checkDecoded(t, &h, list, answer)
			}
			if errors.Is(fillErr, io.EOF) {
				return
			}
		}
	})
}

func checkDecoded(t *testing.T, h *header, list []request, answer int) {
	t.Helper()
	if answer < headerSize || answer > maxFrame || answer%8 != 0 {
		t.Fatalf("an answer of %d bytes", answer)
	}
	plain := make([]verbs.Request, len(list))
	for i := range list {
		r := &list[i]
		if r.Op >= verbs.NumOps || r.Region > verbs.RegionLocks || r.length < 1 || r.length > verbs.MaxTransfer ||
			r.Op.Atomic() && (r.length != 8 || r.Remote%8 != 0) || (r.Op == verbs.Write || r.Op == verbs.Call) != (r.Local != nil) ||
			r.Op == verbs.Call && (len(list) != 1 || r.Args != len(r.Local) || r.Args > r.length || r.length < 8 || r.length > verbs.MaxCall) {
			t.Fatalf("request %d: %+v", i, r)
		}
		plain[i] = r.Request
		if r.Local == nil {
			plain[i].Local = make([]byte, r.length)
		} else if r.Op == verbs.Call {
			plain[i].Local = append(bytes.Clone(r.Local), make([]byte, r.length-r.Args)...)
		}
	}
	var reqs [verbs.MaxList]request
	frame := encodeList(plain, h.qp, h.seq)
	again, err := decodeHeader(frame)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := decodeList(&again, frame, &reqs)
	if err != nil || len(got) != len(list) {
		t.Fatalf("%d requests come back as %d: %v", len(list), len(got), err)
	}
	for i := range plain {
		if !same(&plain[i], &got[i]) {
			t.Fatalf("request %d: %+v comes back as %+v", i, plain[i], got[i])
		}
	}
}
