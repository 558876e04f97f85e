//go:build e2e && e2efull

package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// soak is for how long a soak goes on, E2E_SOAK (default 10m), and what it draws from. The seed is
// printed; E2E_SEED=N draws the same again.
func soak(t *testing.T) (length time.Duration, random *rand.Rand) {
	t.Helper()
	length = 10 * time.Minute
	if text := os.Getenv("E2E_SOAK"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	if text := os.Getenv("E2E_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("E2E_SEED=%d", seed)
	return length, rand.New(rand.NewPCG(seed, 0))
}

// TestSoak scales, deletes, restarts and pauses at random under load.
func TestSoak(t *testing.T) {
	length, random := soak(t)
	s := newSpaceAlone(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	s.fill()
	e := s.startExercise(300)
	size := 2
	restarts := map[string][]time.Time{}
	for end := time.Now().Add(length); time.Now().Before(end); {
		ready := fmt.Sprintf("%d/%d", size, size)
		switch random.IntN(4) {
		case 0, 1:
			size = 1 + random.IntN(4)
			e.begin(fmt.Sprintf("to %d", size))
			s.scale(size)
		case 2:
			// those that are about to leave have nothing any more
			pods := slices.Sorted(maps.Keys(s.owners()))
			pod := pods[random.IntN(len(pods))]
			e.begin("delete " + pod)
			s.replaced(pod, ready, func(pod string) { s.kubectl("delete", "pod", pod, "--wait=false") })
		case 3:
			pods := s.memoryPods()
			pod := pods[random.IntN(len(pods))]
			if past := restarts[pod]; len(past) >= promptRestarts && time.Since(past[len(past)-promptRestarts]) < backOffForgets {
				continue // what it serves would be away for longer than requests wait
			}
			restarts[pod] = append(restarts[pod], time.Now())
			e.begin("restart " + pod)
			s.endContainer(pod)
			s.settled("2/2", ready)
		}
		e.phase("calm")
	}
	s.filled()
	e.finish()
}

// A kubelet starts a container that ended again at once, the second time after 10 s, then after 20
// s and so on; it forgets that when the container has run for ten minutes. Requests wait for 20 s.
const (
	promptRestarts = 2
	backOffForgets = 12 * time.Minute
)

// TestKinds brings up an index of every design, kind of key and routing, and asks it. With DEX
// requests always go to the owner, with the other designs to the server that is asked. Any and
// Owner are the routings of Sherman.
func TestKinds(t *testing.T) {
	for _, routing := range []string{"DEX", "SMART", "CHIME", "Dolphin", "Any", "Owner"} {
		for name, key := range map[string]string{"uint64": "{type: Uint64}", "bytes16": "{type: Bytes, maxLength: 16}", "bytes1024": "{type: Bytes, maxLength: 1024}"} {
			t.Run(routing+"-"+name, func(t *testing.T) {
				s := newSpaceAlone(t)
				manifest := strings.Replace(indexManifest, "{type: Bytes, maxLength: 64}", key, 1)
				switch routing {
				case "DEX":
				case "SMART", "CHIME", "Dolphin":
					manifest = strings.Replace(manifest, "design: DEX", "design: "+routing, 1)
				default:
					manifest = strings.Replace(manifest, "design: DEX\n", "design: Sherman\n  partitioning: {routing: "+routing+"}\n", 1)
				}
				s.newIndex(manifest, "2/2", "2/2")
				for i := range 20 {
					// 8 bytes fit all of them
					s.is(s.redis("set", fmt.Sprintf("key-%04d", i), fmt.Sprint(i)), "OK")
				}
				s.scale(3)
				for i := range 20 {
					s.is(s.redis("get", fmt.Sprintf("key-%04d", i)), fmt.Sprint(i))
				}
				s.is(s.redis("dbsize"), "20")
			})
		}
	}
}
