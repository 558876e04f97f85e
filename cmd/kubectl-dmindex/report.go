package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// Bounds of a report. What does not fit is cut off, and problems.txt says so.
const (
	mostOfFile    = 1 << 20 // bytes of each file
	mostOfReport  = 64 << 20
	mostPods      = 200
	mostBackups   = 20   // and as many pods of Jobs that work on artifacts
	reportedLines = 5000 // of each container's log
	reportLimit   = 5 * time.Minute
)

// source is where a report comes from: the API server.
type source interface {
	gather(ctx context.Context, name string) (*view, error)
	podsOf(ctx context.Context, v *view) ([]corev1.Pod, error)
	logsOf(ctx context.Context, pod *corev1.Pod, o corev1.PodLogOptions) ([]byte, error)
	get(ctx context.Context, pod *corev1.Pod, path string) ([]byte, error)
	operators(ctx context.Context, namespace string) ([]corev1.Pod, error)
	computePools(ctx context.Context, v *view) ([]dmv1.DMComputePool, error)
	backupPods(ctx context.Context, v *view) ([]corev1.Pod, error)
	allEvents(ctx context.Context) ([]corev1.Event, error)
}

func reportCommand(o *options) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "report NAME",
		Short: "Write an archive that says how an index is: objects, events, logs, what servers say of themselves",
		Long: "Report writes an archive (tar.gz) for whoever helps you with an index: its objects, pods, events, the logs of its servers and of the\n" +
			"operator, and what the servers show at /describe and /metrics.\n\n" +
			"It reads no Secret. Keys of the index are shown as digests with a salt of this report, values of variables and annotations of others are taken out, and so is\n" +
			"what looks like a password or a private key. Names of pods, nodes and namespaces, addresses and images stay. Look into it before you\n" +
			"send it.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.connect()
			if err != nil {
				return err
			}
			now := time.Now().UTC()
			name := fmt.Sprintf("dmindex-%s-%s", args[0], now.Format("20060102-150405"))
			if file == "" {
				file = name + ".tar.gz"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), reportLimit)
			defer cancel()
			var archive bytes.Buffer
			if err := report(ctx, c, &archive, name, args[0], o.system, now); err != nil {
				return err
			}
			// for its owner only; an older file is not written over
			f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
			if err != nil {
				return err
			}
			if _, err := f.Write(archive.Bytes()); err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: look into it before you send it\n", file)
			return err
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write; default: dmindex-NAME-TIME.tar.gz")
	return cmd
}

// bundle is a report that is being written.
type bundle struct {
	w        *tar.Writer
	folder   string
	now      time.Time
	left     int
	problems []string
}

func (b *bundle) problem(format string, args ...any) {
	b.problems = append(b.problems, redactText(fmt.Sprintf(format, args...)))
}

// add adds a file, whose keys and secrets are taken out already.
func (b *bundle) add(name string, content []byte) error {
	if len(content) > mostOfFile {
		b.problem("%s: the first %d of %d bytes are left out", name, len(content)-mostOfFile, len(content))
		content = content[len(content)-mostOfFile:]
	}
	if len(content) > b.left {
		b.problem("%s is left out: the report would have more than %d bytes", name, mostOfReport)
		return nil
	}
	b.left -= len(content)
	return b.write(name, content)
}

func (b *bundle) write(name string, content []byte) error {
	err := b.w.WriteHeader(&tar.Header{Name: b.folder + "/" + name, Mode: 0o600, Size: int64(len(content)), ModTime: b.now, Format: tar.FormatPAX})
	if err == nil {
		_, err = b.w.Write(content)
	}
	return err
}

// object adds an object of Kubernetes as YAML. Objects of clients do not have their kind.
func (b *bundle) object(name, apiVersion, kind string, o any) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	content["apiVersion"], content["kind"] = apiVersion, kind
	redactObject(content)
	text, err := yaml.Marshal(content)
	if err != nil {
		return err
	}
	return b.add(name, text)
}

// report writes an archive about an index. What cannot be had is named in problems.txt, and is no
// error.
func report(ctx context.Context, c source, out io.Writer, folder, name, system string, now time.Time) error {
	v, err := c.gather(ctx, name)
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(out)
	b := &bundle{w: tar.NewWriter(zip), folder: folder, now: now, left: mostOfReport}
	for _, n := range v.notes {
		b.problem("%s", n)
	}
	ours := dmv1.GroupVersion.String()
	add := func(failed error) {
		if err == nil {
			err = failed
		}
	}
	add(b.add("status.txt", []byte(redactView(v).status(now))))
	add(b.object("dmindex.yaml", ours, dmv1.KindIndex, v.index))
	for _, p := range v.memory {
		add(b.object("memorypools/"+p.Name+".yaml", ours, "DMMemoryPool", p))
	}
	computePools, failed := c.computePools(ctx, v)
	if failed != nil {
		b.problem("compute pools: %v", failed)
	}
	for i := range computePools {
		add(b.object("computepools/"+computePools[i].Name+".yaml", ours, "DMComputePool", &computePools[i]))
	}
	for i := range v.backups[:min(len(v.backups), mostBackups)] {
		add(b.object("backups/"+v.backups[i].Name+".yaml", ours, "DMBackup", &v.backups[i]))
	}
	for i := range v.schedules {
		add(b.object("schedules/"+v.schedules[i].Name+".yaml", ours, "DMBackupSchedule", &v.schedules[i]))
	}
	jobs, failed := c.backupPods(ctx, v)
	if failed != nil {
		b.problem("pods of backups: %v", failed)
	}
	for i := range jobs[:min(len(jobs), mostBackups)] {
		add(b.server(ctx, c, &jobs[i], "backups/pods/"))
	}
	events, failed := c.allEvents(ctx)
	if failed != nil {
		b.problem("events: %v", failed)
	}
	var lines strings.Builder
	for i := range events {
		e := &events[i]
		fmt.Fprintf(&lines, "%s %s %s/%s %s: %s\n", lastSeen(e).UTC().Format(time.RFC3339), e.Type, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, redactText(e.Message))
	}
	add(b.add("events.txt", []byte(lines.String())))
	pods, failed := c.podsOf(ctx, v)
	if failed != nil {
		b.problem("pods: %v", failed)
	}
	if len(pods) > mostPods {
		b.problem("%d of %d pods are left out", len(pods)-mostPods, len(pods))
		pods = pods[:mostPods]
	}
	for i := range pods {
		add(b.server(ctx, c, &pods[i], "pods/"))
	}
	operators, failed := c.operators(ctx, system)
	if failed != nil {
		b.problem("the operator's pods in %s: %v", system, failed)
	} else if len(operators) == 0 {
		b.problem("there is no operator in %s: name its namespace with --operator-namespace", system)
	}
	for i := range operators[:min(len(operators), 5)] {
		add(b.server(ctx, c, &operators[i], "operator/"))
	}
	add(b.write("problems.txt", []byte(strings.Join(append(b.problems, ""), "\n"))))
	if err != nil {
		return err
	}
	if err := b.w.Close(); err != nil {
		return err
	}
	return zip.Close()
}

// server adds what there is of a pod: itself, its logs, and what it says of itself.
func (b *bundle) server(ctx context.Context, c source, pod *corev1.Pod, folder string) error {
	path := folder + pod.Name
	err := b.object(path+".yaml", "v1", "Pod", pod)
	for _, previous := range []bool{false, true} {
		if previous && !restarted(pod) || err != nil {
			continue
		}
		file := path + ".log"
		if previous {
			file = path + ".previous.log"
		}
		text, failed := c.logsOf(ctx, pod, corev1.PodLogOptions{Previous: previous, TailLines: ptr.To[int64](reportedLines), LimitBytes: ptr.To[int64](4 * mostOfFile), Timestamps: true})
		if failed != nil {
			b.problem("%s: %v", file, failed)
			continue
		}
		err = b.add(file, []byte(redactText(string(text))))
	}
	pages := []string{"metrics"}
	if pod.Labels[dmv1.LabelComponent] == dmv1.ComponentCompute {
		pages = append(pages, "describe")
	}
	for _, page := range pages {
		if err != nil || folder != "pods/" {
			break
		}
		text, failed := c.get(ctx, pod, page)
		if failed != nil {
			b.problem("%s.%s: %v", path, page, failed)
			continue
		}
		err = b.add(path+"."+page, []byte(redactText(string(text))))
	}
	return err
}

func restarted(pod *corev1.Pod) bool {
	for _, s := range pod.Status.ContainerStatuses {
		if s.RestartCount > 0 {
			return true
		}
	}
	return false
}

// podsOf are the pods of an index: of its compute servers, and of its memory pools.
func (c *cluster) podsOf(ctx context.Context, v *view) (pods []corev1.Pod, err error) {
	selectors := []string{dmv1.LabelIndex + "=" + v.index.Name}
	for _, p := range v.memory {
		selectors = append(selectors, dmv1.LabelPool+"="+p.Name)
	}
	for _, s := range selectors {
		list, err := c.pods.CoreV1().Pods(v.index.Namespace).List(ctx, metav1.ListOptions{LabelSelector: dmv1.LabelManagedBy + "=" + dmv1.ManagedBy + "," + s, Limit: mostPods})
		if err != nil {
			return pods, err
		}
		pods = append(pods, list.Items...)
	}
	return pods, nil
}

// backupPods are the pods that dump the index, load it or delete its artifacts, the newest first.
func (c *cluster) backupPods(ctx context.Context, v *view) (pods []corev1.Pod, err error) {
	list, err := c.pods.CoreV1().Pods(v.index.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: dmv1.LabelManagedBy + "=" + dmv1.ManagedBy + "," + dmv1.LabelComponent + "=" + dmv1.ComponentBackup, Limit: mostPods})
	if err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		of := func(b dmv1.DMBackup) bool { return b.Name == p.Labels[dmv1.LabelBackup] }
		if p.Labels[batchv1.JobNameLabel] == v.index.Name+"-restore" || slices.ContainsFunc(v.backups, of) {
			pods = append(pods, p)
		}
	}
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	return pods, nil
}

func (c *cluster) operators(ctx context.Context, namespace string) ([]corev1.Pod, error) {
	list, err := c.pods.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: dmv1.LabelName + "=dmindex," + dmv1.LabelComponent + "=operator", Limit: 10})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func (c *cluster) computePools(ctx context.Context, v *view) (pools []dmv1.DMComputePool, err error) {
	list := &dmv1.DMComputePoolList{}
	if err := c.objects.List(ctx, list, client.InNamespace(v.index.Namespace)); err != nil {
		return nil, err
	}
	for _, p := range list.Items {
		if p.Spec.IndexName == v.index.Name {
			pools = append(pools, p)
		}
	}
	return pools, nil
}

func (c *cluster) allEvents(ctx context.Context) ([]corev1.Event, error) {
	list, err := c.pods.CoreV1().Events(c.namespace).List(ctx, metav1.ListOptions{Limit: eventsListed})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// logsOf reads the log of a pod's server, which is its only container unless somebody added others.
func (c *cluster) logsOf(ctx context.Context, pod *corev1.Pod, o corev1.PodLogOptions) ([]byte, error) {
	o.Container = pod.Labels[dmv1.LabelComponent]
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return c.pods.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &o).DoRaw(ctx)
}

// get asks a server for a page of its port of the metrics, through the API server.
func (c *cluster) get(ctx context.Context, pod *corev1.Pod, page string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	stream, err := c.pods.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, fmt.Sprint(config.PortMetrics), page, nil).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	return io.ReadAll(io.LimitReader(stream, mostOfFile))
}
