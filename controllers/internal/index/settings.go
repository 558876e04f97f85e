package index

import (
	"hash/crc32"

	corev1 "k8s.io/api/core/v1"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/report"
)

// tellSettings writes an event for each compute server that has not taken settings of its pool. The
// former ones are in force there, so nothing is to be done for the index.
func (r *Reconciler) tellSettings(s *scope) {
	for i := range s.compute {
		c := &s.compute[i]
		why := c.described.GetSettingsRefused()
		if why == "" || !r.Logged.Once(c.pod.UID, "settings "+report.Cut(why, 256)) {
			continue
		}
		r.Events.Eventf(s.index, c.pod, corev1.EventTypeWarning, dmv1.ReasonSettingsRefused, report.Numbered("Settle", uint64(crc32.ChecksumIEEE([]byte(why)))), "pod %s goes on with its former settings: %s", c.pod.Name, report.Cut(why, 512))
	}
}
