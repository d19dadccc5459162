package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// ErrFormat is the error for a file with another format version.
var ErrFormat = errors.New("unknown format")

// Name returns the base name of the result's files: its time to the minute, and its mode.
func (r *Result) Name() string {
	return r.StartedAt.UTC().Format("2006-01-02T1504Z") + "-" + r.Mode
}

// Write writes the result into a directory as Name.json and, for benchstat, as Name.txt. It
// creates the directory if necessary and returns the path of the JSON file.
func (r *Result) Write(dir string) (string, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the result: %w", err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	path := filepath.Join(dir, r.Name()+".json")
	if err := WriteFileAtomically(path, append(compactNumbers(data), '\n')); err != nil {
		return "", err
	}
	return path, WriteFileAtomically(filepath.Join(dir, r.Name()+".txt"), r.benchmarks())
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
	if r.Format != Format {
		return nil, fmt.Errorf("read the result in %s: %w %d", path, ErrFormat, r.Format)
	}
	return &r, nil
}

var numberLists = regexp.MustCompile(`\[\n[-+0-9.eE,\s]+\]`)
var whitespace = regexp.MustCompile(`\s+`)

// compactNumbers writes each list of numbers in one line. It cannot change strings, because
// those of JSON contain no line breaks.
func compactNumbers(data []byte) []byte {
	return numberLists.ReplaceAllFunc(data, func(list []byte) []byte { return whitespace.ReplaceAll(list, nil) })
}

// WriteFileAtomically writes a temporary file and renames it, so that path is never
// incomplete.
func WriteFileAtomically(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
