package resp

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestManualHasTheCommands: the manual's table of commands is what the table of the program says.
func TestManualHasTheCommands(t *testing.T) {
	page, err := os.ReadFile("../../docs/redis-commands.md")
	if err != nil {
		t.Fatal(err)
	}
	want := "| command | answer |\n|---|---|\n"
	for _, name := range CommandNames[:len(commands)] {
		k := lookupCommand([]byte(name))
		call := strings.ReplaceAll(strings.TrimSpace(strings.ToUpper(name)+" "+k.usage), "|", `\|`)
		want += fmt.Sprintf("| `%s` | %s |\n", call, k.does)
	}
	if !strings.Contains(string(page), want+"\n") {
		t.Errorf("docs/redis-commands.md has another table than the commands; it should be:\n%s", want)
	}
}
