package hello

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/verbs"
)

func TestHelloRoundTrip(t *testing.T) {
	for _, h := range []*Hello{
		{},
		{Token: verbs.Token{1, 31: 9}, Incarnation: 1 << 63, Earlier: []uint64{7, 1<<64 - 1}},
		{Earlier: make([]uint64, MaxEarlier)},
	} {
		b := h.Append(nil)
		got, err := ReadHello(bytes.NewReader(b))
		if err != nil || !reflect.DeepEqual(got, h) {
			t.Errorf("%+v comes back as %+v, %v", h, got, err)
		}
		for n := range len(b) {
			if _, err := ReadHello(bytes.NewReader(b[:n])); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%d bytes of %d: %v", n, len(b), err)
			}
		}
	}
	long := &Hello{Earlier: make([]uint64, MaxEarlier+1)}
	if _, err := ReadHello(bytes.NewReader(long.Append(nil))); !errors.Is(err, ErrMalformed) {
		t.Errorf("too many earlier sessions: %v", err)
	}
}

func TestAnswerRoundTrip(t *testing.T) {
	for bits := range 128 {
		a := &Answer{
			Code: Code(bits % 6), Incarnation: 3, Session: 4, MaxQPs: 5,
			Capabilities: verbs.Capabilities{
				CacheLineAtomic: bits&1 != 0, OrderedWrite: bits&2 != 0, OrderedReads: bits&4 != 0,
				ReleaseByWrite: bits&8 != 0, MaskedAtomics: bits&16 != 0, Calls: bits&32 != 0, DeviceMemory: 1 << 17, WholeWrite: 8,
				WholeAlways: bits&64 != 0,
			},
			Regions: []verbs.Region{{ID: verbs.RegionData, Size: 1 << 40}, {ID: verbs.RegionLocks, Size: 9}},
		}
		if got, err := ReadAnswer(bytes.NewReader(a.Append(nil))); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%+v comes back as %+v, %v", a, got, err)
		}
	}
}

func TestCodes(t *testing.T) {
	for _, want := range []error{verbs.ErrRefused, verbs.ErrTooMany, verbs.ErrLostMemory, ErrMalformed} {
		a := Answer{Code: CodeOf(want), Incarnation: 2}
		if err := a.Err(1); !errors.Is(err, want) {
			t.Errorf("%v becomes code %d, which means %v", want, a.Code, err)
		}
	}
	if CodeOf(nil) != OK || (&Answer{}).Err(0) != nil {
		t.Error("OK is an error")
	}
	if err := (&Answer{Code: Lost, Incarnation: 0xabc}).Err(0xdef); !strings.Contains(err.Error(), "0xabc") || !strings.Contains(err.Error(), "0xdef") {
		t.Errorf("the error does not name both incarnations: %v", err)
	}
}

// TestOtherVersion: both sides see both versions.
func TestOtherVersion(t *testing.T) {
	for what, f := range map[string]func(b []byte) error{
		"hello":  func(b []byte) error { _, err := ReadHello(bytes.NewReader(b)); return err },
		"answer": func(b []byte) error { _, err := ReadAnswer(bytes.NewReader(b)); return err },
	} {
		err := f(appendPrefix(nil, 777))
		if !errors.Is(err, verbs.ErrVersion) || !strings.Contains(err.Error(), "777") || !strings.Contains(err.Error(), "version 1 ") {
			t.Errorf("%s of version 777: %v", what, err)
		}
		if CodeOf(err) != BadVersion {
			t.Errorf("%s of version 777 is answered with code %d", what, CodeOf(err))
		}
		if err := f([]byte("GET / HTTP/1.1\r\n\r\n")); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s of another protocol: %v", what, err)
		}
	}
}

func FuzzReadHello(f *testing.F) {
	f.Add((&Hello{Earlier: []uint64{1, 2}}).Append(nil))
	f.Add((&Hello{}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ReadHello(bytes.NewReader(b))
		if err != nil {
			return
		}
		if again, err := ReadHello(bytes.NewReader(h.Append(nil))); err != nil || !reflect.DeepEqual(h, again) {
			t.Errorf("%+v comes back as %+v, %v", h, again, err)
		}
	})
}

func FuzzReadAnswer(f *testing.F) {
	f.Add((&Answer{Regions: []verbs.Region{{ID: 1, Size: 5}}}).Append(nil))
	f.Add((&Answer{Code: Lost}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ReadAnswer(bytes.NewReader(b))
		if err != nil {
			return
		}
		if again, err := ReadAnswer(bytes.NewReader(a.Append(nil))); err != nil || !reflect.DeepEqual(a, again) {
			t.Errorf("%+v comes back as %+v, %v", a, again, err)
		}
	})
}
