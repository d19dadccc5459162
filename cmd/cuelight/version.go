package main

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (c *cli) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(*cobra.Command, []string) error {
			platform := runtime.GOOS + "/" + runtime.GOARCH
			return c.print(map[string]string{"version": programVersion(), "go": runtime.Version(), "platform": platform},
				"cuelight %s (%s, %s)", programVersion(), runtime.Version(), platform)
		},
	}
	c.jsonFlag(cmd)
	return cmd
}

// programVersion returns the version from the linker, else from the module, as after
// `go install …@version`.
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
