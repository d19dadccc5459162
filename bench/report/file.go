package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Write writes a result into a directory as NAME.json, its report as NAME.md and the charts of that as NAME-….svg. It creates
// the directory if necessary and returns the paths of the first two. latest also writes latest.md and latest-….svg.
func Write(r *Result, dir string, latest bool) (paths []string, err error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	// A line for each figure. Within strings the quotes are escaped.
	data = append(bytes.ReplaceAll(data, []byte(`{"scenario":`), []byte("\n{\"scenario\":")), '\n')
	path := filepath.Join(dir, r.Name())
	if err := os.WriteFile(path+".json", data, 0o644); err != nil {
		return nil, err
	}
	if err := writeReport(r, dir, r.Name()); err != nil {
		return nil, err
	}
	if latest {
		err = writeReport(r, dir, "latest")
	}
	return []string{path + ".json", path + ".md"}, err
}

// writeReport writes the report last: if it exists, its charts do.
func writeReport(r *Result, dir, name string) error {
	drawn := charts(r)
	for _, c := range drawn {
		if err := os.WriteFile(filepath.Join(dir, name+"-"+c.name+".svg"), c.svg(), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, name+".md"), markdown(r, drawn, name), 0o644)
}

// Read reads a JSON file of Write.
func Read(path string) (*Result, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("read the result in %s: %w", path, err)
	}
	if r.Format != format {
		return nil, fmt.Errorf("read the result in %s: unknown format %d", path, r.Format)
	}
	return &r, nil
}
