// Kubectl-dmindex is a plugin of kubectl: `kubectl dmindex status NAME` draws an index with its
// servers and key ranges, `kubectl dmindex top` says what its compute servers do, `ui` shows it in
// a browser, `explain` what a condition means. `logs` and `report` gather what somebody needs who
// looks for a fault.
//
// It reads the objects of the index, and asks compute servers for /describe on their port of the
// metrics, through the API server's pod proxy. So it needs no password and no connection of its
// own: get of dmindexes and dmmemorypools, list of dmbackups, dmbackupschedules and events, and get
// of pods/proxy are enough for status, top and ui. With list of leases in all namespaces, or get of
// them in the operator's, status says when no operator leads.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubectl dmindex:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "kubectl-dmindex",
		Short:         "Look at indexes on disaggregated memory",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl dmindex"},
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	var o options
	o.flags(cmd)
	cmd.AddCommand(statusCommand(&o), topCommand(&o), uiCommand(&o), explainCommand(), logsCommand(&o), reportCommand(&o))
	return cmd
}

func statusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status [NAME]",
		Short: "Draw an index: memory servers, compute servers, key ranges, conditions, backups and recent events; without a name: list all",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.connect()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				views, err := c.listAll(cmd.Context())
				if err != nil {
					return err
				}
				text := overview(views, o.all, time.Now())
				// Whoever may not see leases sees the indexes, as with their backups.
				if nobody, err := c.leaderless(cmd.Context(), time.Now()); err == nil && nobody != "" {
					text += "\n" + nobody + "\n"
				}
				_, err = fmt.Fprint(cmd.OutOrStdout(), text)
				return err
			}
			v, err := c.gather(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), v.status(time.Now()))
			return err
		},
	}
}

func topCommand(o *options) *cobra.Command {
	var watch time.Duration
	cmd := &cobra.Command{
		Use:   "top [NAME]",
		Short: "Show the load of the compute servers of one index, or of all indexes in the namespace or, with -A, in the cluster",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.connect()
			if err != nil {
				return err
			}
			for {
				views, err := c.gatherAll(cmd.Context(), args)
				if err != nil {
					return err
				}
				fmt.Fprint(cmd.OutOrStdout(), top(views, o.all))
				if watch <= 0 {
					return nil
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(watch):
					fmt.Fprintln(cmd.OutOrStdout())
				}
			}
		},
	}
	cmd.Flags().DurationVarP(&watch, "watch", "w", 0, "refresh at this interval")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	return cmd
}
