// Command gensql writes schema.sql and triggers.sql, below the current directory, from the templates of all pipelines.
package main

import (
	"fmt"
	"os"

	"github.com/cuelight/cuelight/store"
)

func main() {
	g := store.Video()
	for file, sql := range map[string]string{"schema.sql": g.SchemaSQL(), "triggers.sql": g.TriggersSQL()} {
		if err := os.WriteFile(file, []byte(sql), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "gensql:", err)
			os.Exit(1)
		}
	}
}
