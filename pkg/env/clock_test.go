package env

import (
	"io"
	"runtime"
	"runtime/pprof"
	"sync"
	"testing"
	"time"
)

// On amd64 every kernel that this project supports has the function, so a clock that asks the
// kernel there means that it was not found.
func TestClockIsReadWithoutSystemCall(t *testing.T) {
	c := newBootClock()
	if runtime.GOARCH != "amd64" {
		if c.vdso != 0 {
			t.Fatalf("the vDSO is used on %s, where no stub can call it", runtime.GOARCH)
		}
		return
	}
	if c.vdso == 0 {
		t.Fatal("the clock is read by system calls")
	}
}

// Each reading lies between two of the kernel's, on goroutines with stacks of all depths, while
// garbage collections move these and signals of the collector and a profiler arrive.
func TestClockAgreesWithKernel(t *testing.T) {
	if err := pprof.StartCPUProfile(io.Discard); err != nil {
		t.Log("without a profiler, since there is one already:", err)
	} else {
		defer pprof.StopCPUProfile()
	}
	stop := make(chan struct{})
	var collector sync.WaitGroup
	collector.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	})
	defer collector.Wait()
	defer close(stop)
	w := Real()
	var all sync.WaitGroup
	for n := range 64 {
		all.Go(func() {
			for range 200 {
				before := time.Duration(readBySystemCall())
				got := nowAtDepth(w, n)
				after := time.Duration(readBySystemCall())
				if got < before || got > after {
					t.Errorf("%v is not between %v and %v", got, before, after)
					return
				}
			}
		})
	}
	all.Wait()
}

// nowAtDepth reads the clock below so many frames, so that the stack has to grow at different
// places.
//
//go:noinline
func nowAtDepth(w Env, depth int) time.Duration {
	var frame [96]byte
	if depth == 0 {
		return w.Now()
	}
	frame[depth%len(frame)] = 1
	now := nowAtDepth(w, depth-1)
	if frame[depth%len(frame)] != 1 {
		panic("the stack was overwritten")
	}
	return now
}

// A clock that has no vDSO, and one whose vDSO fails, ask the kernel.
func TestClockWithoutVDSO(t *testing.T) {
	before := time.Duration(readBySystemCall())
	if got := (&bootClock{}).now(); got < before || got > time.Duration(readBySystemCall()) {
		t.Fatalf("%v is before %v or in the future", got, before)
	}
}

func TestNowAllocatesNothing(t *testing.T) {
	w := Real()
	if n := testing.AllocsPerRun(100, func() { w.Now() }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func BenchmarkNow(b *testing.B) {
	b.Run("env", func(b *testing.B) {
		for w := Real(); b.Loop(); {
			w.Now()
		}
	})
	b.Run("kernel", func(b *testing.B) {
		for b.Loop() {
			readBySystemCall()
		}
	})
	b.Run("time.Now", func(b *testing.B) {
		for b.Loop() {
			time.Now()
		}
	})
}
