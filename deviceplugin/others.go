package deviceplugin

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/dmindex/dmindex/deviceplugin/hca"
)

// holdLimit is how long a device stays another plugin's after the kubelet has listed it last. The
// kubelet itself keeps the devices of a plugin that ended for five minutes, but forgets them when
// it starts anew.
const holdLimit = 6 * time.Minute

// others knows which devices other plugins advertise, from the kubelet's list of what can be
// allocated.
type others struct {
	socket string               // of the kubelet's PodResources API; empty = it is not asked
	seen   map[string]otherSlot // by device ID
	asked  bool                 // it has answered once
}

type otherSlot struct {
	resource string
	last     time.Time
}

// askKubelet asks the kubelet. Without an answer, what was known stays.
func (o *others) askKubelet(ctx context.Context, now time.Time, ours func(resource string) bool) error {
	if o.socket == "" {
		return nil
	}
	conn, err := grpc.NewClient("unix:"+o.socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return fmt.Errorf("ask the kubelet what other plugins advertise: %w", err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	reply, err := podresources.NewPodResourcesListerClient(conn).GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	if err != nil {
		return fmt.Errorf("ask the kubelet at %s what other plugins advertise: %w", o.socket, err)
	}
	o.note(now, reply, ours)
	return nil
}

func (o *others) note(now time.Time, reply *podresources.AllocatableResourcesResponse, ours func(resource string) bool) {
	o.asked = true
	if o.seen == nil {
		o.seen = map[string]otherSlot{}
	}
	for id, s := range o.seen {
		if now.Sub(s.last) > holdLimit || ours(s.resource) {
			delete(o.seen, id)
		}
	}
	for _, d := range reply.Devices {
		if ours(d.ResourceName) {
			continue
		}
		for _, id := range d.DeviceIds {
			if len(o.seen) < 10*hca.MaxHCAs || o.seen[id].resource != "" {
				o.seen[id] = otherSlot{d.ResourceName, now}
			}
		}
	}
}

// isKnown reports whether the kubelet was asked, if it is to be.
func (o *others) isKnown() bool { return o.socket == "" || o.asked }

// advertised says whose an HCA is. Plugins call devices by their PCI address or, some, by their
// name.
func (o *others) advertised(h hca.HCA) (resource string, ok bool) {
	for _, id := range []string{h.PCI, h.Name} {
		if s, ok := o.seen[id]; ok && id != "" {
			return s.resource, true
		}
	}
	return "", false
}
