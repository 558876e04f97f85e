package main

import "github.com/spf13/cobra"

func operatorCommand() *cobra.Command {
	return &cobra.Command{Use: "operator", GroupID: "serve", Short: "Run the operator"}
}
