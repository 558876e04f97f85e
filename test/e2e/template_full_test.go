//go:build e2e && e2efull

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// ownPool is a memory pool x-memory whose pods run on any node, with a number of copies.
func ownPool(copies int) string {
	return fmt.Sprintf(`
apiVersion: dmindex.io/v1alpha1
kind: DMMemoryPool
metadata: {name: x-memory}
spec: {servers: 2, memory: 128Mi, copies: %d, pod: {labels: {made: first}}}
`, copies)
}

// memoryPodsMade are the pods of the pool x-memory, each with the label and the image that it was
// made of. ready reports whether all of them are.
func (s *space) memoryPodsMade() (names, made []string, ready bool) {
	s.Helper()
	ready = true
	for _, line := range strings.Fields(s.kubectl("get", "pods", "--selector=dmindex.io/pool=x-memory",
		`--output=jsonpath={range .items[*]}{.metadata.name},{.metadata.labels.made},{.spec.containers[0].image},{.status.containerStatuses[0].ready}{"\n"}{end}`)) {
		of := strings.Split(line, ",")
		names, made, ready = append(names, of[0]), append(made, of[1]+" "+of[2]), ready && of[3] == "true"
	}
	return names, made, ready
}

// renews changes the pool, and waits until it has so many pods, all of them made of a label and an
// image. It returns their names.
func (s *space) renews(patch string, pods int, label, image string) (names []string) {
	s.Helper()
	s.kubectl("patch", "dmmp/x-memory", "--type=merge", "--patch="+patch)
	s.eventually(long, "all memory pods are of the newest template", func() (bool, string) {
		all, made, ready := s.memoryPodsMade()
		names = all
		old := slices.ContainsFunc(made, func(of string) bool { return of != label+" "+image })
		pool := s.jsonpath("dmmp/x-memory", `{.metadata.generation} {.status.observedGeneration} {.status.ready}{range .status.conditions[*]} {.type}={.status} ({.reason}: {.message}){end}`)
		var wanted, seen int
		fmt.Sscan(pool, &wanted, &seen)
		done := !old && ready && len(all) == pods && wanted == seen && strings.Contains(pool, "PoolReady=True") &&
			!strings.Contains(pool, "Replacing") && !strings.Contains(pool, "Degraded=True")
		return done, fmt.Sprintf("%v; %s", made, pool)
	})
	return names
}

// TestMemoryTemplate changes the template of memory pods, and then their image, of memory that is
// kept once and of memory that is kept twice. Other pods get the memory, and take the place of the
// former ones; where it is kept once the image is changed in place. No request fails and nothing is
// lost.
func TestMemoryTemplate(t *testing.T) {
	for copies, name := range map[int]string{1: "once", 2: "twice"} {
		t.Run(name, func(t *testing.T) {
			s := newSpaceAlone(t)
			s.apply(ownPool(copies))
			s.newIndex(strings.Replace(indexManifest, "template: {servers: 2, memory: 128Mi}", "ref: {name: x-memory}, quota: 96Mi", 1), "2/2", "2/2")
			first := s.renews(`{"spec":{"paused":false}}`, 2*copies, "first", target.image)
			s.fill()
			e := s.startExercise(300)

			e.begin("another template")
			second := s.renews(`{"spec":{"pod":{"labels":{"made":"second"}}}}`, 2*copies, "second", target.image)
			for _, pod := range second {
				if slices.Contains(first, pod) {
					t.Errorf("pod %s was not made anew: %v, then %v", pod, first, second)
				}
			}
			e.phase("after the template")

			e.begin("another image")
			third := s.renews(fmt.Sprintf(`{"spec":{"image":%q}}`, target.nextImage), 2*copies, "second", target.nextImage)
			if same := fmt.Sprint(third) == fmt.Sprint(second); same != (copies == 1) {
				t.Errorf("%d copies: the pods are %v, were %v", copies, third, second)
			}
			s.settled("2/2", "2/2")
			e.phase("after the image")

			s.filled()
			e.finish()
			s.condition("DataLost", "False")
			if moved := s.eventsOf("VolumeMoved"); len(moved) < 2 {
				t.Errorf("events of moves: %q", moved)
			}
		})
	}
}
