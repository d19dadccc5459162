// Command gensql writes schema.sql, triggers.sql and store/engine/video.sql, below the
// current directory, from the templates of all pipelines.
package main

import (
	"fmt"
	"os"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func main() {
	g := store.Video()
	for file, sql := range map[string]string{
		"schema.sql": g.SchemaSQL(), "triggers.sql": g.TriggersSQL(), "store/engine/video.sql": engine.Statements(g),
	} {
		if err := os.WriteFile(file, []byte(sql), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "gensql:", err)
			os.Exit(1)
		}
	}
}
