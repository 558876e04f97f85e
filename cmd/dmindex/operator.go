package main

import (
	"flag"

	"github.com/spf13/cobra"

	"github.com/dmindex/dmindex/controllers"
)

func operatorCommand() *cobra.Command {
	var o controllers.RunOptions
	cmd := &cobra.Command{
		Use:     "operator",
		GroupID: "serve",
		Short:   "Run the operator",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return controllers.Run(cmd.Context(), o) },
	}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	o.AddFlags(flags)
	cmd.Flags().AddGoFlagSet(flags)
	return cmd
}
