package backup

import (
	"context"
	"encoding/json"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
)

// programEnded is how the program of a pod of a Job ended; nil = it did not, as far as its kubelet
// said.
func programEnded(p *corev1.Pod) *corev1.ContainerStateTerminated {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == dmv1.ComponentBackup {
			return c.State.Terminated
		}
	}
	return nil
}

// othersRun reports whether a container runs that is not the program's.
func othersRun(p *corev1.Pod) bool {
	for _, c := range p.Status.ContainerStatuses {
		if c.Name != dmv1.ComponentBackup && c.State.Running != nil {
			return true
		}
	}
	return false
}

// reportOf is what the program of a pod said at its end; nil = nothing.
func reportOf(p *corev1.Pod) *config.BackupReport {
	ended := programEnded(p)
	if ended == nil || ended.Message == "" {
		return nil
	}
	r := &config.BackupReport{}
	if json.Unmarshal([]byte(ended.Message), r) != nil {
		return nil
	}
	return r
}

// Progress says what a Job that is not over does.
func (s *JobState) Progress() string {
	text := "Job " + s.Job.Name
	switch {
	case s.podless:
		text += " waits for a pod"
	case s.pod != "":
		text += " is at work in pod " + s.pod
	default:
		text += " is at work"
	}
	if s.problem != "" {
		text += ": " + s.problem
	}
	return text
}

// again is when to look at a Job again that is not over, if nobody tells.
func (s *JobState) again() time.Duration {
	if s.podless {
		return podlessAfter
	}
	return 0
}

// EndAttempts deletes pods of a Job that is not over whose program failed, and which go on without
// it: the next attempt is made when they have ended.
func EndAttempts(ctx context.Context, b *reconciler.Base, s *JobState) error {
	for _, p := range s.lingering {
		if err := serverpod.Delete(ctx, b, p, "its program failed, and other containers of the pod go on"); err != nil {
			return err
		}
	}
	return nil
}

// podlessAfter is how long Kubernetes may take to make a pod of a Job before anybody asks why.
const podlessAfter = 5 * time.Second

// whyPodless says why a Job has no pod; empty = nobody knows, or it is too early to ask. Kubernetes
// tells that in events, which the operator has no right to read. So it tries to make such a pod
// itself, without making it: a quota, an admission policy or a priority class that is missing
// refuses that, too.
func whyPodless(ctx context.Context, b *reconciler.Base, job *batchv1.Job) string {
	now := b.Now()
	made := kube.Stamp(job, "", job.CreationTimestamp.Time, now)
	switch {
	case ptr.Deref(job.Spec.Suspend, false):
		return "the Job is suspended"
	case now.Sub(made) < podlessAfter:
		return ""
	}
	pod := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
	pod.GenerateName, pod.Namespace = job.Name+"-", job.Namespace
	err := b.Create(ctx, pod, client.DryRunAll)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err):
		return "it has no pod, since none can be made: " + err.Error()
	case now.Sub(made) > time.Minute && job.Status.Failed == 0:
		return "it has no pod: see its events (kubectl describe job " + job.Name + ")"
	}
	return ""
}
