//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// noImage is an image that nobody has. Its registry refuses at once: how long a name is looked up
// that nobody has differs from network to network, and is not what is tested.
const noImage = "127.0.0.1:1/dmindex:typo"

// patch changes the specification of an object.
func (s *space) patch(object, spec string) {
	s.Helper()
	s.kubectl("patch", object, "--type=merge", `--patch={"spec":`+spec+`}`)
}

// settledWithin is settled with a limit of its own, from now on.
func (s *space) settledWithin(limit time.Duration, memory, compute string) {
	s.Helper()
	begin := time.Now()
	s.settled(memory, compute)
	if took := time.Since(begin); took > limit {
		s.Errorf("settled after %v, want %v", took, limit)
	} else {
		s.Logf("settled after %v", took)
	}
}

// TestMistypedImage: an image that cannot be had changes nothing that runs, and the status names
// it. Replaced by one that can be had, the index is as desired within a minute, with all that it
// had.
func TestMistypedImage(t *testing.T) {
	s := newSpace(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	s.fill()
	incarnations := s.incarnations()
	s.patch("dmi/x", `{"image":"`+noImage+`"}`)
	s.eventually(long, "a probe and one more compute server wait for the image", func() (bool, string) {
		waiting := s.jsonpath("pods", `{range .items[*]}{.metadata.labels.app\.kubernetes\.io/component}={.status.containerStatuses[0].state.waiting.reason} {end}`)
		is := func(component string) bool {
			return strings.Contains(waiting, component+"=ErrImagePull") || strings.Contains(waiting, component+"=ImagePullBackOff")
		}
		return is("image-probe") && is("compute"), waiting
	})
	s.eventually(short, "the status names the image", func() (bool, string) {
		message := s.jsonpath("dmi/x", `{.status.conditions[?(@.reason=="ImageUnavailable")].message}`)
		return strings.Contains(message, noImage), message
	})
	s.condition("Available", "True")
	s.filled()
	s.patch("dmi/x", `{"image":"`+target.nextImage+`"}`)
	s.settledWithin(time.Minute, "2/2", "2/2")
	s.eventually(short, "no pod has the image", func() (bool, string) {
		images := s.jsonpath("pods", "{.items[*].spec.containers[*].image}")
		return !strings.Contains(images, noImage), images
	})
	s.is(s.incarnations(), incarnations)
	s.filled()
}

// TestRepairsBesideRefusal: while the API server refuses what the index asks for, a dead compute
// server is fenced, its keys are served within half a minute, and the index is available.
func TestRepairsBesideRefusal(t *testing.T) {
	s := newSpace(t)
	s.newIndex(indexManifest, "2/2", "2/2")
	s.fill()
	s.patch("dmi/x", `{"memoryPools":[{"name":"memory","template":{"servers":3,"memory":"128Mi"}}],`+
		`"computePools":[{"name":"compute","template":{"replicas":3,"minReplicas":3,"maxReplicas":4}}]}`)
	s.eventually(short, "the index says what is refused", func() (bool, string) {
		message := s.jsonpath("dmi/x", `{.status.conditions[?(@.type=="Degraded")].message}`)
		return strings.Contains(message, "minReplicas"), message
	})
	s.condition("Available", "True")
	dead := s.computePods()[0]
	begin := time.Now()
	s.kubectl("delete", "pod", dead, "--force", "--grace-period=0")
	s.eventually(long, "all keys are served", func() (bool, string) {
		out, err := s.tryDmindex("scan", "--prefix", "key/", "--count")
		return err == nil && out == "5000" && !s.owners()[dead], fmt.Sprint(out, " owners ", s.owners())
	})
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("the keys of %s were served after %v", dead, took)
	} else {
		t.Logf("the keys of %s were served after %v", dead, took)
	}
	s.condition("Available", "True")
	s.filled()
	s.kubectl("scale", "dmcp", "x-compute", "--replicas=3")
	// Nothing is refused any more, and the index asks for a third memory server.
	s.settled("3/3", "3/3")
	s.filled()
}
