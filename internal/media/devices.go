package media

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cuelight/cuelight/internal/media/sandbox"
)

// deviceKind is what an encoder needs of the host; empty for nothing.
type deviceKind string

const (
	nvidiaDevice deviceKind = "nvidia"
	intelDevice  deviceKind = "intel"
	// renderDevice is any graphics card with a VA-API driver that encodes.
	renderDevice deviceKind = "render"
)

// device is a graphics card, and what a child must reach of this host to use it.
type device struct {
	kind  deviceKind
	nodes []string // the files in /dev, to read, write and control
	// readable are files that describe the card and configure its driver.
	readable []string
}

// The identifiers of makers on the PCI bus.
const (
	intelVendor  = "0x8086"
	nvidiaVendor = "0x10de"
)

// findDevice returns the first device of a kind, or nil. If children are not confined, they may run on
// another host, so that the files of this one say nothing: then there is always one.
func (t Tools) findDevice(kind deviceKind) *device {
	d := &device{kind: kind}
	if kind == nvidiaDevice {
		d.findNVIDIA(t.root)
	} else {
		d.findRender(t.root)
	}
	if len(d.nodes) == 0 && t.Sandbox == SandboxOff && kind != nvidiaDevice {
		d.nodes = []string{"/dev/dri/renderD128"}
	}
	if len(d.nodes) == 0 && t.Sandbox != SandboxOff {
		return nil
	}
	return d
}

// findNVIDIA finds the files of NVIDIA's driver, which are those of all cards together.
func (d *device) findNVIDIA(root string) {
	if _, err := os.Stat(filepath.Join(root, "/dev/nvidiactl")); err != nil {
		return
	}
	nodes, _ := filepath.Glob(filepath.Join(root, "/dev/nvidia*"))
	d.nodes = slices.DeleteFunc(nodes, func(name string) bool {
		info, err := os.Stat(name)
		return err != nil || info.IsDir()
	})
	d.readable = []string{
		"/proc/driver/nvidia", "/proc/driver/nvidia-uvm", "/proc/devices", "/proc/modules", "/proc/sys/vm/mmap_min_addr",
		"/sys/module/nvidia", "/sys/module/nvidia_uvm",
	}
	vendors, _ := filepath.Glob(filepath.Join(root, "/sys/bus/pci/devices/*/vendor"))
	for _, file := range vendors {
		if readWord(file) == nvidiaVendor {
			d.describe(filepath.Dir(file))
		}
	}
}

// findRender finds the first card whose driver has VA-API; that of NVIDIA does not encode with it.
func (d *device) findRender(root string) {
	nodes, _ := filepath.Glob(filepath.Join(root, "/dev/dri/renderD*"))
	for _, node := range nodes {
		card := filepath.Join(root, "/sys/class/drm", filepath.Base(node), "device")
		vendor := readWord(filepath.Join(card, "vendor"))
		if vendor == nvidiaVendor || d.kind == intelDevice && vendor != intelVendor {
			continue
		}
		d.nodes = []string{node}
		d.readable = []string{"/etc/libva.conf", "/etc/drirc", "/run/opengl-driver"}
		d.describe(card)
		return
	}
}

// describe lets a child read what the kernel tells about a card.
func (d *device) describe(card string) {
	if dir, err := filepath.EvalSymlinks(card); err == nil {
		d.readable = append(d.readable, dir)
	}
}

func readWord(file string) string {
	text, _ := os.ReadFile(file)
	return strings.TrimSpace(string(text))
}

// groups are the groups whose members may open the nodes: a child that runs as another user joins them. The
// group of root is not among them.
func (d *device) groups() (groups []int) {
	for _, node := range d.nodes {
		if group, ok := nodeGroup(node); ok && group != 0 && !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	return groups
}

// nodeGroup returns the group that a node is open to, if it is not open to everybody.
func nodeGroup(node string) (group int, ok bool) {
	const others, members = 0o006, 0o060
	info, err := os.Stat(node)
	if err != nil || info.Mode()&others == others || info.Mode()&members != members {
		return 0, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return int(st.Gid), ok
}

// isClosedToOthers reports whether only root may open a node.
func isClosedToOthers(node string) bool {
	const others = 0o006
	info, err := os.Stat(node)
	group, hasGroup := nodeGroup(node)
	return err == nil && info.Mode()&others != others && (!hasGroup || group == 0)
}

// allow lets a confined child use the device.
func (d *device) allow(p *sandbox.Policy) {
	if d == nil {
		return
	}
	p.Devices, p.Groups, p.ReadOnly = d.nodes, d.groups(), append(p.ReadOnly, d.readable...)
	if d.kind == nvidiaDevice {
		// CUDA reserves as many addresses as the host and all cards have memory. What it uses is still
		// limited, by Tools.Memory.
		p.Memory = 0
	}
}

// globalArgs open the device for the encoder, and for the filter that copies frames to it.
func (d *device) globalArgs() []string {
	switch {
	case d == nil || d.kind == nvidiaDevice:
		return nil // the encoder opens the first card that can encode
	case d.kind == intelDevice:
		return []string{"-init_hw_device", "qsv=gpu,child_device=" + d.nodes[0]}
	}
	return []string{"-init_hw_device", "vaapi=gpu:" + d.nodes[0], "-filter_hw_device", "gpu"}
}

// driverVariables choose between cards and drivers of a host.
var driverVariables = []string{"LIBVA_DRIVER_NAME", "LIBVA_DRIVERS_PATH", "CUDA_VISIBLE_DEVICES"}

// environment is what a child with the device gets in addition.
func (d *device) environment() (env []string) {
	if d == nil {
		return nil
	}
	for _, name := range driverVariables {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}
