package backup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
	"github.com/dmindex/dmindex/controllers/internal/kube"
	"github.com/dmindex/dmindex/controllers/internal/reconciler"
	"github.com/dmindex/dmindex/controllers/internal/serverpod"
)

// JobState is how far a Job that works on an artifact is. Its program says so, by its exit and its
// report: a pod may have containers that others put in (a mesh does) and that do not end with the
// program, or end otherwise, and Kubernetes judges a Job by whole pods.
type JobState struct {
	// Job is nil if there is none.
	Job *batchv1.Job
	// Done: its program succeeded.
	Done bool
	// Failed is why it ended without success; empty = it did not.
	Failed string
	// Report is of the program that succeeded; nil = none is known.
	Report *config.BackupReport
	// Alive: a pod of it has not ended.
	Alive bool
	// Whole: all of a pod has succeeded. Kubernetes calls the Job complete, now or soon.
	Whole bool

	pod       string        // newest
	lingering []*corev1.Pod // whose program ended, and which go on without it
	podless   bool          // it is to have a pod, and there is none
	problem   string        // what keeps its pod from running, or the last error of one that failed
}

// over reports whether the Job and its pods have ended.
func (s *JobState) over() bool { return s.Done || s.Failed != "" }

// LookAtJob reads a Job of owner and what its pods say. The Job is looked for at the API server if
// the cache does not have it, and so is the report of a Job that succeeded: the caches of Jobs and
// of pods are filled one by one, and neither a second Job is made nor a report taken for lost
// because one of them is behind.
func LookAtJob(ctx context.Context, b *reconciler.Base, owner client.Object, name string) (s JobState, err error) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: owner.GetNamespace()}}
	switch err := b.Find(ctx, job, job); {
	case apierrors.IsNotFound(err):
		return s, nil
	case err != nil:
		return s, err
	case !metav1.IsControlledBy(job, owner):
		return s, fmt.Errorf("%w: Job %s exists and is not of %s: rename one of them or delete it", kube.ErrNameTaken, name, owner.GetName())
	}
	for _, from := range []client.Reader{b.Client, b.Live} {
		pods := &corev1.PodList{}
		err = from.List(ctx, pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: name, dmv1.LabelManagedBy: dmv1.ManagedBy})
		if err != nil {
			return s, err
		}
		if s = JudgeJob(job, pods.Items); !s.Done || s.Report != nil {
			break
		}
	}
	if s.podless && s.problem == "" {
		s.problem = whyPodless(ctx, b, job)
	}
	return s, nil
}

// JudgeJob says how far a Job is.
func JudgeJob(job *batchv1.Job, pods []corev1.Pod) JobState {
	s := JobState{Job: job}
	pods = slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool {
		return !slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == job.UID })
	})
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for i := range pods {
		p := &pods[i]
		s.pod = p.Name
		report, ended := reportOf(p), programEnded(p)
		succeeded := ended != nil && ended.ExitCode == 0 || ended == nil && p.Status.Phase == corev1.PodSucceeded
		// Kubernetes may make another pod all the same. What a dump says then stays true: the
		// next attempt finds the artifact, and reads it back. Who opens what was loaded waits
		// (openLoaded).
		if succeeded {
			s.Done = true
			if report != nil {
				s.Report = report
			}
		}
		if ended != nil && othersRun(p) && p.DeletionTimestamp.IsZero() {
			s.lingering = append(s.lingering, p)
		}
		s.Whole = s.Whole || p.Status.Phase == corev1.PodSucceeded
		s.Alive = s.Alive || p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded
		switch {
		case report != nil && report.Error != "":
			s.problem = report.Error
		case !succeeded:
			if text := unstarted(p); text != "" {
				s.problem = text
			}
		}
	}
	for _, c := range job.Status.Conditions {
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete:
			s.Done = true
		case batchv1.JobFailed:
			s.Failed = cmp.Or(s.problem, cmp.Or(c.Message, c.Reason))
			if c.Reason == batchv1.JobReasonDeadlineExceeded {
				s.Failed = "it took too long: " + cmp.Or(s.problem, "it was still at work")
			}
		}
	}
	if s.Done {
		s.Failed = "" // what else was in the pod failed
	}
	s.podless = !s.Alive && !s.over() && job.DeletionTimestamp.IsZero()
	return s
}

// unstarted says what keeps a pod from running or from ending, or how it ended without a report.
func unstarted(p *corev1.Pod) string {
	if p.DeletionTimestamp != nil && p.Spec.NodeName != "" && p.Status.Phase != corev1.PodFailed {
		// No other pod follows before this one has ended: both would work on the same artifact or
		// index.
		return fmt.Sprintf("pod %s is being deleted, and node %s does not say that it has ended: if the node is off for good, delete it", p.Name, p.Spec.NodeName)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("pod %s is not scheduled: %s", p.Name, c.Message)
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Message != "":
			return fmt.Sprintf("pod %s waits: %s: %s", p.Name, c.State.Waiting.Reason, c.State.Waiting.Message)
		case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
			return fmt.Sprintf("pod %s ended with code %d (%s)", p.Name, c.State.Terminated.ExitCode, c.State.Terminated.Reason)
		}
	}
	if p.Status.Phase == corev1.PodFailed {
		return fmt.Sprintf("pod %s failed: %s %s", p.Name, p.Status.Reason, p.Status.Message)
	}
	return ""
}

// MakeJob makes a Job of owner. A Job is created and never changed: its template cannot be.
func MakeJob(ctx context.Context, b *reconciler.Base, owner client.Object, job *batchv1.Job, t *dmv1.PodTemplate) error {
	if err := ctrl.SetControllerReference(owner, job, b.Scheme()); err != nil {
		return err
	}
	serverpod.AsUser(b, &job.Spec.Template.Spec)
	if err := serverpod.Patch(b, owner, &job.Spec.Template.Spec, t); err != nil {
		return err
	}
	if err := b.Create(ctx, job, kube.Owner); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make Job %s: %w", job.Name, err)
	}
	return nil
}

// EndJob deletes a Job with its pods. The Job is there until they have ended.
func EndJob(ctx context.Context, b *reconciler.Base, job *batchv1.Job) error {
	if !job.DeletionTimestamp.IsZero() {
		return nil
	}
	uid := job.UID
	err := b.Delete(ctx, job, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// keepJob is how long the Job of what is over stays, for the logs of its pods.
const keepJob = 24 * time.Hour

// DropJob deletes a Job of owner whose outcome is written down, once it is of no more use: there
// may be thousands of backups. One whose pod does not end with its program is of no use at once.
// Until then it returns how long that is. A time to live of the Job
// would do that as well before an operator that was away knew the outcome.
func DropJob(ctx context.Context, b *reconciler.Base, owner client.Object, name string) (time.Duration, error) {
	job := &batchv1.Job{}
	// The cache will do: a Job that it does not have yet is looked at when it does.
	err := b.Get(ctx, client.ObjectKey{Namespace: owner.GetNamespace(), Name: name}, job)
	if err != nil || !metav1.IsControlledBy(job, owner) {
		return 0, client.IgnoreNotFound(err)
	}
	left := keepJob - b.Now().Sub(EndOf(job))
	if !slices.ContainsFunc(job.Status.Conditions, HasEnded) {
		switch s, err := LookAtJob(ctx, b, owner, name); {
		case err != nil:
			return 0, err
		case s.Alive:
			// a mesh's proxy goes on, or it failed, and another attempt was made
			left = 0
		}
	}
	if left > 0 {
		return left, nil
	}
	return 0, EndJob(ctx, b, job)
}

// HasEnded reports whether a condition says that a Job has ended.
func HasEnded(c batchv1.JobCondition) bool {
	return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
}

// EndOf is when a Job ended, or was made if it did not.
func EndOf(job *batchv1.Job) time.Time {
	ended := job.CreationTimestamp.Time
	for _, c := range job.Status.Conditions {
		if c.LastTransitionTime.After(ended) {
			ended = c.LastTransitionTime.Time
		}
	}
	return ended
}
