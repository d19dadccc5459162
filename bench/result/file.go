package result

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// ErrFormat is the error of a file that another version of this package wrote.
var ErrFormat = errors.New("unknown format")

// Name is what a result's files are called, without what each ends in: its time
// to the minute, and its mode. A run in the same minute and mode has the same.
func (r *Result) Name() string {
	return r.StartedAt.UTC().Format("2006-01-02T1504Z") + "-" + r.Mode
}

// Write writes the result into a directory, which is made if it is missing, as
// Name.json and, for benchstat, as Name.txt. It returns the path of the first.
// Neither file is ever there in part.
func (r *Result) Write(dir string) (string, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode the result: %w", err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", err
	}
	path := filepath.Join(dir, r.Name()+".json")
	if err := WriteFileAtomically(path, append(inOneLine(data), '\n')); err != nil {
		return "", err
	}
	return path, WriteFileAtomically(filepath.Join(dir, r.Name()+".txt"), r.benchmarks())
}

// Read reads what Write wrote.
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

var numbers = regexp.MustCompile(`\[\n[-+0-9.eE,\s]+\]`)
var blank = regexp.MustCompile(`\s+`)

// inOneLine puts each list of numbers in a line of its own. Text is left alone:
// there is no line break in JSON's.
func inOneLine(data []byte) []byte {
	return numbers.ReplaceAllFunc(data, func(list []byte) []byte { return blank.ReplaceAll(list, nil) })
}

// WriteFile writes beside the path, and then renames.
func WriteFileAtomically(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			if e := os.Remove(f.Name()); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
	}()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
