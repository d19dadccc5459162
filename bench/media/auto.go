package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/cuelight/cuelight/internal/media"
)

// autoQuality prints, for each title, the CRF that quality: auto chooses and the SSIM (luma) that the largest size has with it; its bits as
// a ratio to those of the default CRF; and the processor time of the probe as a share of that of the transcode. The last line compares
// all bits with those of the default, and of the fixed CRF with which all titles are at the target.
func autoQuality(ctx context.Context, paths []string) error {
	fmt.Println("| title | CRF | SSIM | bits to CRF 24 | probe |\n| --- | --- | --- | --- | --- |")
	var rows []autoRow
	for _, path := range paths {
		row, err := measureAuto(ctx, path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		fmt.Printf("| %s | %d | %.4f | %.2f | %.2f |\n", filepath.Base(path), row.crf, row.ssim, row.auto/row.fixed[24], row.probe)
		rows = append(rows, row)
	}
	lowest := slices.MinFunc(rows, func(a, b autoRow) int { return a.crf - b.crf }).crf &^ 1 // those are measured
	auto, usual, floor := 0.0, 0.0, 0.0
	for _, r := range rows {
		auto, usual, floor = auto+r.auto, usual+r.fixed[24], floor+r.fixed[lowest]
	}
	fmt.Printf("all: %.2f of the bits of CRF 24, %.2f of those of CRF %d\n", auto/usual, auto/floor, lowest)
	return nil
}

type autoRow struct {
	crf               int
	ssim, auto, probe float64
	fixed             map[int]float64 // bits by CRF
}

func measureAuto(ctx context.Context, path string) (r autoRow, err error) {
	dir, err := os.MkdirTemp("", "cuelight-title-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	t, err := readTitle(ctx, path, dir)
	if err != nil {
		return r, err
	}
	before := childrenCPU()
	r.crf, err = media.Tools{Sandbox: media.SandboxOff}.AutoQuality(ctx, t.path, t.info, t.rungs)
	if err != nil {
		return r, err
	}
	probe := childrenCPU() - before
	r.fixed = make(map[int]float64)
	for _, crf := range []int{18, 20, 22, 24, r.crf} {
		p, err := t.measure(ctx, cuelight("balanced", "veryfast", 24), crf)
		if err != nil {
			return r, err
		}
		r.fixed[crf] = p.bits
		if crf == r.crf {
			r.auto, r.ssim, r.probe = p.bits, p.luma, probe.Seconds()/p.cpu.Seconds()
		}
	}
	return r, nil
}
