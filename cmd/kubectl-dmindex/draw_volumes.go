package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// drawVolumes draws the volumes of the index's memory pools that were moved, have another copy or
// are to get one. Of most pools there are none.
func (v *view) drawVolumes(b *strings.Builder) {
	if !slices.ContainsFunc(v.memory, func(p *dmv1.DMMemoryPool) bool { return len(p.Status.Volumes) > 0 }) {
		return
	}
	table(b, func(line func(...any)) {
		line("MEMORY POOL", "VOLUME", "VIEW", "STATE", "PRIMARY", "BACKUP", "COPIED", "WAITS FOR")
		for _, p := range v.memory {
			for _, volume := range p.Status.Volumes {
				copied := "-"
				if volume.State == dmv1.VolumeCopying {
					copied = bar(float64(volume.Percent) / 100)
				}
				line(p.Name, volume.ID, volume.View, volume.State, orDash(volume.Primary), orDash(volume.Backup), copied, orDash(volume.Message))
			}
		}
	})
	b.WriteByte('\n')
}

// drawPools says what is not as it should be with the memory pools.
func (v *view) drawPools(b *strings.Builder, now time.Time, said map[string]bool) {
	for _, p := range v.memory {
		for _, c := range p.Status.Conditions {
			wrong := c.Type == dmv1.ConditionDegraded && c.Status == "True" || c.Type == dmv1.ConditionPoolReady && c.Status == "False"
			if !wrong {
				continue
			}
			fmt.Fprintf(b, "  memory pool %s: %s=%s for %s  %s: %s\n", p.Name, c.Type, c.Status, duration.HumanDuration(now.Sub(c.LastTransitionTime.Time)), c.Reason, orDash(c.Message))
			if !said[c.Reason] {
				said[c.Reason] = true
				b.WriteString(explain(c.Reason, "    "))
			}
		}
	}
}

// durability is what the index's spec asks for, and what is in force if that is less.
func (v *view) durability() string {
	text := string(v.index.Spec.Durability)
	if now := v.index.Status.Durability; now != "" && now != v.index.Spec.Durability {
		text += " (now " + string(now) + ")"
	}
	return text
}
