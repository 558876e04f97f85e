package hca

// Abilities is what a model can do. Sysfs does not tell: it follows from the PCI identity, for the
// models that are known. Firmware and settings may take some of it away; the servers find out when
// they open the device.
type Abilities struct {
	Model         string // for people; empty = unknown
	Provider      string // user-space driver: mlx5, rxe, ...; empty = unknown
	DeviceMemory  bool   // it has memory on the chip that programs can allocate
	MaskedAtomics bool   // it executes compare-and-swap and fetch-and-add under a mask
}

const mellanox = "15b3"

// models of Mellanox by PCI product: physical and virtual functions. Device memory begins with
// ConnectX-5, masked atomics with ConnectX-4.
var models = map[string]Abilities{}

func init() {
	mlx5 := func(model string, deviceMemory bool, products ...string) {
		for _, p := range products {
			models[p] = Abilities{Model: model, Provider: "mlx5", DeviceMemory: deviceMemory, MaskedAtomics: true}
		}
	}
	mlx5("ConnectX-4", false, "1013", "1014")
	mlx5("ConnectX-4 Lx", false, "1015", "1016")
	mlx5("ConnectX-5", true, "1017", "1018")
	mlx5("ConnectX-5 Ex", true, "1019", "101a")
	mlx5("ConnectX-6", true, "101b", "101c")
	mlx5("ConnectX-6 Dx", true, "101d")
	mlx5("ConnectX virtual function", true, "101e") // of ConnectX-6 Dx and later
	mlx5("ConnectX-6 Lx", true, "101f")
	mlx5("ConnectX-7", true, "1021")
	mlx5("ConnectX-8", true, "1023")
	mlx5("BlueField", true, "a2d2", "a2d3")
	mlx5("BlueField-2", true, "a2d6")
	mlx5("BlueField-3", true, "a2dc")
	for _, p := range []string{"1002", "1003", "1004", "1007"} {
		models[p] = Abilities{Model: "ConnectX-3", Provider: "mlx4"}
	}
}

// abilitiesOf looks a device up by what it is.
func abilitiesOf(h HCA) Abilities {
	if h.Vendor == mellanox {
		if a, ok := models[h.Product]; ok {
			return a
		}
	}
	switch h.Driver {
	case "mlx5_core":
		return Abilities{Provider: "mlx5"} // a model that is not known here
	case "mlx4_core":
		return Abilities{Provider: "mlx4"}
	case "irdma", "ice", "i40e":
		return Abilities{Provider: "irdma"}
	case "bnxt_en":
		return Abilities{Provider: "bnxt_re"}
	}
	return Abilities{}
}
