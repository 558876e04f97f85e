// Package version knows the version of this program.
package version

import "runtime/debug"

// version is set by the linker (Makefile).
var version string

// String is the version, or the commit the program was built from.
func String() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "dev"
}
