package h2

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/net/http2"
)

// TestFramesAreFound: whatever the pieces in which a connection's bytes come, the headers of all
// frames are found.
func TestFramesAreFound(t *testing.T) {
	var stream bytes.Buffer
	w := http2.NewFramer(&stream, nil)
	w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1})
	w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 20), EndHeaders: true})
	w.WriteData(1, false, nil)
	w.WriteData(1, true, make([]byte, 300))
	w.WriteRSTStream(3, http2.ErrCodeCancel)
	want := []http2.FrameHeader{
		{Type: http2.FrameSettings, Length: 6},
		{Type: http2.FrameHeaders, Flags: http2.FlagHeadersEndHeaders, Length: 20, StreamID: 1},
		{Type: http2.FrameData, StreamID: 1},
		{Type: http2.FrameData, Flags: http2.FlagDataEndStream, Length: 300, StreamID: 1},
		{Type: http2.FrameRSTStream, Length: 4, StreamID: 3},
	}
	for piece := 1; piece <= stream.Len(); piece++ {
		var got []http2.FrameHeader
		var f Frames
		for _, b := range slices.Collect(slices.Chunk(stream.Bytes(), piece)) {
			for h, rest, ok := f.Next(b); ok; h, rest, ok = f.Next(rest) {
				got = append(got, h)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("in pieces of %d: %v, want %v", piece, got, want)
		}
	}
}

// FuzzFrames: whatever a connection sends, in whatever pieces, the same headers are found, and no
// byte is in two frames.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(http2.ClientPreface+"\x00\x00\x06\x04\x00\x00\x00\x00\x00abcdef\x00\x00\x00"), uint8(3))
	f.Add([]byte(http2.ClientPreface+"\xff\xff\xff\x00\xff\xff\xff\xff\xff"), uint8(1))
	f.Fuzz(func(t *testing.T, sent []byte, piece uint8) {
		find := func(pieces ...[]byte) (found []http2.FrameHeader) {
			frames := FromClient()
			for _, b := range pieces {
				for h, rest, ok := frames.Next(b); ok; h, rest, ok = frames.Next(rest) {
					found = append(found, h)
				}
			}
			return found
		}
		whole := find(sent)
		if got := find(slices.Collect(slices.Chunk(sent, max(1, int(piece))))...); fmt.Sprint(got) != fmt.Sprint(whole) {
			t.Fatalf("in pieces of %d: %v, want %v", piece, got, whole)
		}
		taken := len(http2.ClientPreface)
		for i, h := range whole {
			if taken += 9; i+1 < len(whole) {
				taken += int(h.Length)
			}
		}
		if len(whole) > 0 && taken > len(sent) {
			t.Fatalf("%d bytes have frames of %d: %v", len(sent), taken, whole)
		}
	})
}
