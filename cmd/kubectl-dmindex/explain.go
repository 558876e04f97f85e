package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// meaning is what a condition or a reason says, and what its reader can do about it. The comments
// of api/v1alpha1/conditions.go are the source of meanings, as of docs/reference/conditions.md.
type meaning struct {
	when, do string
}

// explain is the meaning of a condition or reason, each line behind indent; empty if it has none.
func explain(name, indent string) string {
	m, known := meanings[name]
	if !known {
		return ""
	}
	text := indent + "means: " + m.when + "\n"
	if m.do != "" {
		text += indent + "to do: " + m.do + "\n"
	}
	return text
}

func explainCommand() *cobra.Command {
	names := slices.Sorted(maps.Keys(meanings))
	return &cobra.Command{
		Use:       "explain [REASON...]",
		Short:     "Say what a condition or a reason means and what to do; without any: list them",
		ValidArgs: names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = names
			}
			for _, name := range args {
				i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
				if i < 0 {
					return fmt.Errorf("%s is no condition and no reason of one: kubectl dmindex explain lists them", name)
				}
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s", names[i], explain(names[i], "  ")); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
