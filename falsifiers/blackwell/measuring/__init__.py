"""Measurements that falsifiers take themselves: times, errors of gradients, bytes of a device."""
