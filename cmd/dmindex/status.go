package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/dmindex/dmindex/client"
	"github.com/dmindex/dmindex/pkg/partition"
)

func statusCommand() *cobra.Command {
	return onIndex(&cobra.Command{
		Use:   "status",
		Short: "Show the index's compute servers and its partition map",
		Args:  cobra.NoArgs,
	}, func(cmd *cobra.Command, _ []string) (func(*client.Client) error, error) {
		return func(c *client.Client) error { return status(cmd.Context(), cmd.OutOrStdout(), c) }, nil
	})
}

func status(ctx context.Context, out io.Writer, c *client.Client) error {
	m := c.Map()
	fmt.Fprintf(out, "index %s\n", m.Index)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SERVER\tRPC\tVERSION\tMAP\tCONNECTIONS\tOPERATIONS\tFORWARDED\tERRORS\tCACHE\tSTATE")
	for _, s := range c.Status(ctx) {
		if s.Err != nil {
			fmt.Fprintf(table, "%s\t%s\t\t\t\t\t\t\t\tnot reachable: %v\n", s.Server.Name, s.Server.RPC, s.Err)
			continue
		}
		r, state := s.Reply, "serving"
		switch {
		case r.DataLost != "":
			state = "DATA LOST: " + r.DataLost
		case r.Draining:
			state = "draining"
		}
		cache := sizeFlag(r.CacheBytes)
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\n", s.Server.Name, s.Server.RPC, r.Version, r.MapGeneration,
			r.Connections, r.Operations, r.Forwarded, r.Errors, cache.String(), state)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "partition map: %s\n", strings.TrimSpace(partition.Describe(nil, m)))
	return err
}
