// Command gensql rewrites schema.sql and triggers.sql, in the folder it is
// started in, from the templates that make the tables of any pipeline.
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
