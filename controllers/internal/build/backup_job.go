package build

import (
	"maps"
	"path"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// ArtifactOf is where the artifact of a backup lies in its storage. The UID is in it, so that
// backups of the same name, one after the other or in several clusters, have artifacts of their
// own.
func ArtifactOf(b *dmv1.DMBackup) string {
	dir := ""
	switch storage := b.Spec.Storage; {
	case storage.Volume != nil:
		dir = storage.Volume.Path
	case storage.S3 != nil:
		dir = storage.S3.Prefix
	}
	return path.Join(dir, b.Namespace, b.Spec.IndexName, b.Name+"."+string(b.UID)+".dump")
}

// Names of the Jobs of a backup.
func DumpJobName(backup string) string   { return backup + "-dump" }
func DeleteJobName(backup string) string { return backup + "-delete" }

// DumpJob dumps an index to the artifact of a backup.
func DumpJob(b *dmv1.DMBackup, image string, limit time.Duration) *batchv1.Job {
	j := artifactJob(DumpJobName(b.Name), b.Namespace, b.Spec.BackupTemplate, image, limit)
	j.Labels[dmv1.LabelBackup], j.Spec.Template.Labels[dmv1.LabelBackup] = b.Name, b.Name
	work(j, "create", ArtifactOf(b))
	encrypt(j, b.Spec.Storage)
	connect(j, b.Spec.IndexName)
	return j
}

// DeleteJob deletes an artifact of a backup.
func DeleteJob(b *dmv1.DMBackup, artifact, image string, limit time.Duration) *batchv1.Job {
	j := artifactJob(DeleteJobName(b.Name), b.Namespace, b.Spec.BackupTemplate, image, limit)
	j.Labels[dmv1.LabelBackup], j.Spec.Template.Labels[dmv1.LabelBackup] = b.Name, b.Name
	work(j, "delete", artifact)
	return j
}

// RestoreJobName is the name of the Job that loads an index from a backup.
func RestoreJobName(index string) string { return index + "-restore" }

// restoreWithin is how long a Job may take that loads an index.
const restoreWithin = 24 * time.Hour

// RestoreJob loads an index from an artifact with that digest. It goes to compute servers by
// themselves: the Service of the index leads nowhere until it is loaded.
func RestoreJob(index *dmv1.DMIndex, identity string, t dmv1.BackupTemplate, artifact, digest, image string, endpoints []string) *batchv1.Job {
	j := artifactJob(RestoreJobName(index.Name), index.Namespace, t, image, restoreWithin)
	j.Annotations = map[string]string{dmv1.AnnotationIdentity: identity}
	work(j, "restore", artifact)
	encrypt(j, t.Storage)
	connect(j, index.Name)
	c := &j.Spec.Template.Spec.Containers[0]
	c.Args = append(c.Args, "--digest="+digest, "--endpoint="+strings.Join(endpoints, ","))
	return j
}

// attempts is how many pods of a Job may fail.
const attempts = 3

// artifactJob is what Jobs that work on artifacts have in common. Its pods have no identity in the
// cluster: no token of a service account. They have the storage, and what work and connect add. A
// pod is made only when the one before has ended, so that two attempts do not overlap.
func artifactJob(name, namespace string, t dmv1.BackupTemplate, image string, limit time.Duration) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: meta(name, namespace, map[string]string{dmv1.LabelComponent: dmv1.ComponentBackup})}
	j.Spec.BackoffLimit = ptr.To(int32(attempts - 1))
	j.Spec.ActiveDeadlineSeconds = ptr.To(max(int64(limit/time.Second), 1))
	j.Spec.PodReplacementPolicy = ptr.To(batchv1.Failed)
	p := &j.Spec.Template
	p.Labels = beside(map[string]string{dmv1.LabelName: "dmindex", dmv1.LabelManagedBy: dmv1.ManagedBy, dmv1.LabelComponent: dmv1.ComponentBackup}, t.Pod.Labels)
	p.Labels, p.Annotations = orGiven(p.Labels, noMesh.labels), orGiven(beside(nil, t.Pod.Annotations), noMesh.annotations)
	p.Spec = corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		AutomountServiceAccountToken:  ptr.To(false),
		EnableServiceLinks:            ptr.To(false),
		TerminationGracePeriodSeconds: ptr.To(int64(30)),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true),
			RunAsUser:    ptr.To(int64(User)),
			RunAsGroup:   ptr.To(int64(User)),
			FSGroup:      ptr.To(int64(User)),
			// a volume with many dumps is not gone through each time
			FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
			SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name:  dmv1.ComponentBackup,
			Image: image,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				ReadOnlyRootFilesystem:   ptr.To(true),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
			Resources: resources(corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi"),
			}, nil, t.Pod.Resources),
			TerminationMessagePath: config.BackupReportFile,
		}},
	}
	useTemplate(&p.Spec, &t.Pod)
	attach(&p.Spec, t.Storage)
	return j
}

// noMesh asks service meshes not to put a proxy into pods of Jobs: it would not end with the
// program, so the Job would not either, and what the program says is encrypted anyway. A template
// that says otherwise is followed.
var noMesh = struct{ labels, annotations map[string]string }{
	labels: map[string]string{"sidecar.istio.io/inject": "false", "kuma.io/sidecar-injection": "disabled"},
	annotations: map[string]string{
		"sidecar.istio.io/inject": "false", "kuma.io/sidecar-injection": "disabled", "linkerd.io/inject": "disabled", "consul.hashicorp.com/connect-inject": "false",
	},
}

// orGiven is what is given, and defaults for what is not.
func orGiven(given, defaults map[string]string) map[string]string {
	all := maps.Clone(defaults)
	maps.Copy(all, given)
	return all
}

// attach gives a pod the storage of artifacts, and tells its program of it.
func attach(p *corev1.PodSpec, storage dmv1.BackupStorage) {
	c := &p.Containers[0]
	if v := storage.Volume; v != nil {
		p.Volumes = append(p.Volumes, corev1.Volume{Name: "backup", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v.ClaimName},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "backup", MountPath: config.BackupDir})
		c.Args = append(c.Args, "--dir="+config.BackupDir)
	}
	if s3 := storage.S3; s3 != nil {
		p.Volumes = append(p.Volumes, secretVolume("s3", s3.CredentialsSecret.Name))
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "s3", MountPath: config.BackupS3Dir, ReadOnly: true})
		c.Args = append(c.Args, "--s3-endpoint="+s3.Endpoint, "--s3-bucket="+s3.Bucket, "--s3-region="+s3.Region, "--s3-credentials="+config.BackupS3Dir)
		if s3.Proxy != "" { // an older image does not know it
			c.Args = append(c.Args, "--s3-proxy="+s3.Proxy)
		}
	}
}

// work says what a Job does with which artifact.
func work(j *batchv1.Job, command, artifact string) {
	c := &j.Spec.Template.Spec.Containers[0]
	c.Args = append([]string{"backup", command, "--artifact=" + artifact, "--report=" + config.BackupReportFile}, c.Args...)
}

// encrypt gives a Job what it encrypts and decrypts artifacts with. One that deletes an artifact
// does not need it, and the Secret may be gone by then.
func encrypt(j *batchv1.Job, storage dmv1.BackupStorage) {
	if storage.EncryptionSecret == nil {
		return
	}
	p := &j.Spec.Template.Spec
	p.Volumes = append(p.Volumes, secretVolume("encryption", storage.EncryptionSecret.Name))
	p.Containers[0].VolumeMounts = append(p.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "encryption", MountPath: config.BackupEncryptionDir, ReadOnly: true})
	p.Containers[0].Args = append(p.Containers[0].Args, "--encryption="+config.BackupEncryptionDir)
}

// connect lets a Job use an index, with what any program uses it.
func connect(j *batchv1.Job, index string) {
	p := &j.Spec.Template.Spec
	p.Volumes = append(p.Volumes, secretVolume("conn", ConnectionName(index)))
	p.Containers[0].VolumeMounts = append(p.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "conn", MountPath: config.BackupConnDir, ReadOnly: true})
	p.Containers[0].Args = append(p.Containers[0].Args, "--secret="+config.BackupConnDir)
}
