package resp

import (
	"strings"

	"github.com/tidwall/redcon"

	"github.com/dmindex/dmindex/computeserver/internal/count"
)

// withHelp makes a command with subcommands answer HELP: its subcommands, and what they do.
func withHelp(k *command, run func(c *conn, args [][]byte)) func(c *conn, args [][]byte) {
	lines := []string{strings.ToUpper(k.name) + " <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"}
	lines = append(lines, subcommands(k.usage)...)
	lines = append(lines, "    "+k.does, "HELP", "    Print this help.")
	return func(c *conn, args [][]byte) {
		if len(args) != 2 || !isWord(args[1], "HELP") {
			run(c, args)
			return
		}
		c.out = redcon.AppendArray(c.out, len(lines))
		for _, line := range lines {
			c.out = redcon.AppendString(c.out, line)
		}
		c.tally.Count(count.OK)
	}
}

// subcommands divides the usage of a command at each | that stands in no bracket.
func subcommands(usage string) (all []string) {
	usage = strings.TrimSpace(usage)
	if inner, ok := strings.CutPrefix(usage, "["); ok && strings.HasSuffix(inner, "]") && depthAt(inner, len(inner)-1) == 0 {
		usage = inner[:len(inner)-1]
	}
	from := 0
	for i, b := range usage {
		if b == '|' && depthAt(usage, i) == 0 {
			all, from = append(all, usage[from:i]), i+1
		}
	}
	return append(all, usage[from:])
}

// depthAt is how many brackets are open in front of a byte.
func depthAt(text string, i int) int {
	return strings.Count(text[:i], "[") - strings.Count(text[:i], "]")
}
