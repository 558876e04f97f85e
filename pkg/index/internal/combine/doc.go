// Package combine spares the memory servers requests that sessions of one client would make side by
// side: read delegation and write combining (SMART, section 4.2).
package combine
