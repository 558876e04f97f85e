// Dmindex is every program of the project in one: the operator, the servers that it places, and the
// tools that talk to them.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dmindex/dmindex/cmd/dmindex/internal/version"
	"github.com/dmindex/dmindex/pkg/logs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dmindex:", err)
		os.Exit(1)
	}
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "dmindex",
		Short:         "Ordered indexes on disaggregated memory",
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddGroup(
		&cobra.Group{ID: "try", Title: "Without Kubernetes:"},
		&cobra.Group{ID: "use", Title: "Talk to an index:"},
		&cobra.Group{ID: "serve", Title: "What the operator runs:"},
	)
	cmd.AddCommand(
		localCommand(), benchCommand(),
		getCommand(), putCommand(), delCommand(), scanCommand(), loadCommand(), dumpCommand(), restoreCommand(), statusCommand(),
		operatorCommand(), memserverCommand(), computeserverCommand(), devicePluginCommand(), backupCommand(),
	)
	return cmd
}

// logger writes to stderr, as every server of this program does.
func logger(c logs.Config) (*slog.Logger, error) {
	log, _, err := leveled(c)
	return log, err
}

// leveled is the same, with the level, which settings may change.
func leveled(c logs.Config) (*slog.Logger, *slog.LevelVar, error) {
	handler, level, err := c.HandlerAndLevel(os.Stderr)
	if err != nil {
		return nil, nil, err
	}
	return slog.New(handler), level, nil
}
