package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

func logsCommand(o *options) *cobra.Command {
	var component string
	var since time.Duration
	var tail int64
	var previous bool
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the logs of all servers of an index, each line with its pod",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if component != "" && component != dmv1.ComponentMemory && component != dmv1.ComponentCompute {
				return fmt.Errorf("--component=%s: write %s or %s", component, dmv1.ComponentMemory, dmv1.ComponentCompute)
			}
			if tail < 1 {
				return fmt.Errorf("--tail=%d: write how many lines of each pod, at least 1", tail)
			}
			c, err := o.connect()
			if err != nil {
				return err
			}
			v, err := c.readIndex(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			pods, err := c.podsOf(cmd.Context(), v)
			if err != nil {
				return err
			}
			options := corev1.PodLogOptions{Previous: previous, TailLines: &tail, LimitBytes: ptr.To[int64](4 * mostOfFile)}
			if since > 0 {
				options.SinceSeconds = ptr.To(max(1, int64(since.Seconds())))
			}
			slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
			for i := range pods {
				if component != "" && pods[i].Labels[dmv1.LabelComponent] != component || previous && !restarted(&pods[i]) {
					continue
				}
				text, err := c.logsOf(cmd.Context(), &pods[i], options)
				if err != nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %v\n", pods[i].Name, err)
					continue
				}
				if err := prefixed(cmd.OutOrStdout(), pods[i].Name, text); err != nil {
					return err
				}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&component, "component", "", "only servers of this kind: memory or compute")
	f.DurationVar(&since, "since", 0, "only lines of this last time, such as 10m")
	f.Int64Var(&tail, "tail", 200, "how many lines of each pod")
	f.BoolVarP(&previous, "previous", "p", false, "of the containers before those that run, where there were any")
	return cmd
}

// prefixed writes lines, each behind the name of its pod.
func prefixed(w io.Writer, pod string, text []byte) error {
	for line := range bytes.Lines(text) {
		if _, err := fmt.Fprintf(w, "%s  %s\n", pod, bytes.TrimRight(line, "\n")); err != nil {
			return err
		}
	}
	return nil
}
